# The judging side: torch, triton, cupy, compilers, and the CUDA toolkit of BASE.
#   docker build -f worker.Dockerfile -t kernel-eval-worker .
# BASE is of Debian or Ubuntu. Without a CUDA toolkit in it, raw and inline CUDA are not compiled by nvcc.
ARG BASE=nvidia/cuda:13.0.2-devel-ubuntu24.04

FROM ${BASE} AS system
# Python.h and venv too, where the base has a Python without them; g++ is what torch's extensions are compiled with.
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends ca-certificates g++ \
    $(python3 -c 'import ensurepip, os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null \
      || echo python3 python3-dev python3-venv) \
 && rm -rf /var/lib/apt/lists/*

FROM system AS packages
# For example an index of CPU-only torch wheels, together with HASHES=off.
ARG PIP_ARGS=""
# `off`: packages of the versions of constraints.txt, whatever their files are. For files of another index than PyPI.
ARG HASHES=on
WORKDIR /build
COPY pyproject.toml constraints.txt ./
COPY hashes hashes
COPY deploy/install-packages ./
RUN python3 -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15) and "Python 3.11 to 3.14 is needed")' \
 && python3 -m venv /opt/venv \
 && sh install-packages worker telemetry
# After the packages of every worker, whose layer is the same whichever languages follow.
# Kernel languages besides Triton and Gluon, dependency groups by a comma: helion,tilelang,cute_dsl,cuda_tile
ARG LANGUAGES=""
RUN for language in $(echo "$LANGUAGES" | tr , ' '); do sh install-packages "$language" || exit 1; done

FROM system
# Everything here is readable by others: a submission has a user of its own.
RUN groupadd --gid 10001 service && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp service \
 && install -d -o service -g service -m 0755 /var/lib/kernel-eval
COPY --from=packages /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    STATE_DIR=/var/lib/kernel-eval/state \
    LEASE_DIR=/var/lib/kernel-eval
WORKDIR /srv/kernel-eval
COPY celeryconfig.py ./
COPY domain domain
COPY backends backends
COPY sandbox sandbox
COPY profiling profiling
COPY validation validation
COPY tasks tasks
COPY stack stack
# By itself without privileges. As root with the capabilities of docker-compose.yml every submission has its own user.
USER service
# From the heartbeats in Redis: every worker that belongs here must have been heard of in the last seconds.
HEALTHCHECK --interval=30s --timeout=15s --start-period=120s CMD ["python", "-m", "stack.workers", "--check"]
CMD ["python", "-m", "stack.workers"]
