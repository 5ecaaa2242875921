# The HTTP side (target `api`) and the page of the workers (target `flower`). No GPU library, no compiler.
#   docker build -f api.Dockerfile --target api -t kernel-eval-api .
# BASE brings Python 3.11 to 3.14 with venv, and nothing else is needed of it. constraints.txt was tested with 3.11.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS packages
ARG PIP_ARGS=""
# `off`: packages of the versions of constraints.txt, whatever their files are. For files of another index than PyPI.
ARG HASHES=on
WORKDIR /build
COPY pyproject.toml constraints.txt ./
COPY hashes hashes
COPY deploy/install-packages ./
RUN python3 -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15) and "Python 3.11 to 3.14 is needed")' \
 && python3 -m venv /opt/venv \
 && sh install-packages api telemetry

FROM packages AS flower-packages
ARG PIP_ARGS=""
ARG HASHES=on
RUN sh install-packages flower

FROM ${BASE} AS service
RUN groupadd --gid 10001 service && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp service \
 && install -d -o service -g service -m 0700 /var/lib/kernel-eval/keys
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /srv/kernel-eval

FROM service AS flower
COPY --from=flower-packages /opt/venv /opt/venv
# How the broker is reached: Celery takes this file from the working directory.
COPY celeryconfig.py ./
COPY domain domain
USER service
EXPOSE 5555
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 5555, timeout=4); c.request('GET', '/healthcheck'); exit(c.getresponse().status != 200)"]
CMD ["celery", "flower", "--address=0.0.0.0", "--port=5555"]

FROM service AS api
COPY --from=packages /opt/venv /opt/venv
COPY celeryconfig.py ./
COPY domain domain
COPY sandbox sandbox
COPY tasks tasks
COPY api api
# For `python -m stack keys`.
COPY stack stack
USER service
ENV HOST=0.0.0.0 \
    PORT=8000 \
    API_KEYS_FILE=/var/lib/kernel-eval/keys/api_keys.json
EXPOSE 8000
# 503 is an answer: no worker is there, which is not the fault of this container.
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import http.client as h, os; c = h.HTTPConnection('127.0.0.1', int(os.environ['PORT']), timeout=4); c.request('GET', '/health'); exit(c.getresponse().status not in (200, 503))"]
CMD ["gunicorn", "--config", "python:api.gunicorn_config", "api:create_app()"]
