"""Gunicorn: `gunicorn -c python:api.gunicorn_config "api:create_app()"`."""

from __future__ import annotations

import gc
from typing import Any

from gunicorn import glogging

from api.auth.key_file import KeyFile
from api.http.accept_balancer import ServerProcess
from api.http.context import KEY, Desk
from api.http.json_body import held_up
from api.http.limits import CONNECTIONS, PROCESSES, THREADS
from domain.settings import settings
from tasks.node import log_config

bind = f"{settings().host}:{settings().port}"
worker_class = ServerProcess
workers = PROCESSES
threads = THREADS
worker_connections = CONNECTIONS
backlog = 2048

# Longer than the idle time of most clients' pools, so that the client closes first and no request meets a closed end.
keepalive = 75
# Of the process's main loop, not of a request: a held answer of 600 s does not end it.
timeout = 60
# A held answer ends at once when the process stops (see api/http/long_poll.py); what remains is a request being read.
graceful_timeout = 5

# It writes without a deadline.
sendfile = False

# The management socket would lie in the user's home and outlive a killed server.
control_socket_disable = True
loglevel = settings().log_level.lower()


class Log(glogging.Logger):  # type: ignore[misc] # gunicorn has no type information.
    """Gunicorn's lines, and beside them those of the application, by LOG_FORMAT."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.setFormatter(log_config.formatter(settings().log_format))
        log_config.set_up(settings().log_level, settings().log_format)


logger_class = Log


class Closing:
    """The application, whose `Connection: close` closes: Gunicorn drops that header, and keeps the connection.

    So does a body that nobody has read and that is not there: Gunicorn would have a thread wait for it.
    """

    def __init__(self, application: Any) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            if ("Connection", "close") in headers or held_up(environ):
                start_response.__self__.force_close()
            return start_response(status, headers, *more)

        return self._application(environ, start)


def on_starting(server: Any) -> None:
    """Says who gets in; a file of keys that cannot be read stops the start."""
    own = settings()
    if own.keys_required:
        found = KeyFile(own.api_keys_file, own.key_requests_per_minute, own.key_max_jobs).keys()
        server.log.info("API keys are required; %s has %d", own.api_keys_file, len(found))
        if not found:
            server.log.warning("nobody can get in yet: make a key with `python -m stack keys add NAME --scope submit`")
    elif own.loopback:
        server.log.info("no API keys are required from this machine (HOST=%s)", own.host)
    else:
        server.log.warning(
            "HOST=%s REQUIRE_API_KEYS=off: whoever reaches this port has code run here, and reads all jobs", own.host
        )


def child_exit(server: Any, worker: ServerProcess) -> None:
    """However it ended."""
    worker.gone()


def post_worker_init(worker: Any) -> None:
    """Lets the clients that wait be answered when the process is told to stop, and tells others of ended jobs.

    What has been loaded stays: looked through for garbage, every answer of the moment waits 50 to 80 ms, without it 4
    (docs/measurements.md).
    """
    desk: Desk = worker.wsgi.extensions[KEY]
    desk.waiters.end_when(lambda: not worker.alive)
    desk.courier.start()
    worker.wsgi = Closing(worker.wsgi)
    gc.collect()
    gc.freeze()
