"""Gunicorn: `gunicorn -c python:api.gunicorn_config "api:create_app()"`."""

from __future__ import annotations

from typing import Any

from api.capacity import PROCESSES, THREADS
from api.desk import KEY, Desk
from domain.settings import settings

bind = f"{settings().host}:{settings().port}"
worker_class = "gthread"
workers = PROCESSES
threads = THREADS
worker_connections = 4 * THREADS
backlog = 2048

# Longer than the idle time of most clients' pools, so that the client closes first and no request meets a closed end.
keepalive = 75
# Of the process's main loop, not of a request: a held answer of 600 s does not end it.
timeout = 60
# A held answer ends at once when the process stops (see api/waiting.py); what remains is a request being read.
graceful_timeout = 5

# The management socket would lie in the user's home and outlive a killed server.
control_socket_disable = True
loglevel = settings().log_level.lower()


def post_worker_init(worker: Any) -> None:
    """Lets the clients that wait be answered when the process is told to stop."""
    desk: Desk = worker.wsgi.extensions[KEY]
    desk.waiters.stopping = lambda: not worker.alive
