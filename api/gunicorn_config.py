"""Gunicorn: `gunicorn -c python:api.gunicorn_config "api:create_app()"`."""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Any

from gunicorn import glogging

from api.auth.key_file import KeyFile, KeyFileError
from api.http.accept_balancer import ServerProcess
from api.http.context import KEY, AppContext
from api.http.json_body import would_block
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
# Concerns the process's main loop, not a request: a response delayed for 600 s does not end the process.
timeout = 60
# A delayed response ends at once when the process stops (see api/http/long_poll.py). Only requests being read remain.
graceful_timeout = 5

# sendfile has no deadline.
sendfile = False

# The management socket would lie in the user's home and outlive a killed server.
control_socket_disable = True
loglevel = settings().log_level.lower()


class Log(glogging.Logger):  # type: ignore[misc] # gunicorn has no type information.
    """Formats Gunicorn's and the application's log lines by LOG_FORMAT."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.setFormatter(log_config.formatter(settings().log_format))
        log_config.set_up(settings().log_level, settings().log_format)


logger_class = Log


class Closing:
    """Wraps the application so that `Connection: close` closes the connection; Gunicorn drops that header.

    An unread body that has not arrived closes it too, because Gunicorn would make a thread wait for it.
    """

    def __init__(self, application: Any) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            if ("Connection", "close") in headers or would_block(environ):
                start_response.__self__.force_close()
            return start_response(status, headers, *more)

        return self._application(environ, start)


def on_starting(server: Any) -> None:
    """Logs who gets access; a key file that cannot be read, or missing packages for traces, stop the start."""
    config = settings()
    if config.otlp_endpoint is not None:
        import_module("api.observability.tracing")
    if config.keys_required:
        try:
            keys = KeyFile(config.api_keys_file, config.key_requests_per_minute, config.key_max_jobs).keys()
        except KeyFileError as error:
            raise SystemExit(f"{error}") from error
        server.log.info("API keys are required; %s has %d", config.api_keys_file, len(keys))
        if not keys:
            server.log.warning("nobody can get in yet: make a key with `python -m stack keys add NAME --scope submit`")
    elif config.loopback:
        server.log.info("no API keys are required from this machine (HOST=%s)", config.host)
    else:
        server.log.warning(
            "HOST=%s REQUIRE_API_KEYS=off: whoever reaches this port has code run here, and reads all jobs", config.host
        )


def child_exit(server: Any, worker: ServerProcess) -> None:
    """Called in the parent for every end of a process."""
    worker.on_exit()


def post_worker_init(worker: Any) -> None:
    """Lets waiting clients be answered when the process stops, and starts to deliver webhooks.

    Freezes loaded objects: a garbage collection that scanned them delayed all current responses by 50 to 80 ms, instead
    of 4 ms (docs/measurements.md).
    """
    context: AppContext = worker.wsgi.extensions[KEY]
    context.long_poll.hub.stopping = lambda: not worker.alive
    context.dispatcher.start()
    worker.wsgi = Closing(worker.wsgi)
    gc.collect()
    gc.freeze()
