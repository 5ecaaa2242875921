"""Tells whether the service is being stopped: it then reports on its jobs and refuses new ones."""

from __future__ import annotations

from api.http.problems import RETRY_AFTER_S, Kind, Problem
from domain.settings import settings

STOPPING = "the service is being stopped: jobs that run are finished, and no new ones are taken"


def draining() -> bool:
    """Whether the drain file (DRAIN_FILE) exists. It is a file because all server processes must see it."""
    file = settings().drain_file
    return file is not None and file.exists()


def refuse_when_draining() -> None:
    """Raises the Problem for a submission that arrives while the service is being stopped."""
    if draining():
        detail = f"{STOPPING}; nothing was recorded, try again when it is back"
        raise Problem(Kind.DRAINING, detail, {"Retry-After": str(RETRY_AFTER_S)})
