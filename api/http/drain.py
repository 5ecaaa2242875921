"""Whether this service is being stopped: it tells of the jobs that it has, and takes no others."""

from __future__ import annotations

from api.http.problems import RETRY_AFTER_S, Kind, Problem
from domain.settings import settings

TOLD = "the service is being stopped: jobs that run are finished, and no new ones are taken"


def draining() -> bool:
    """There is a file for it (DRAIN_FILE), as all processes of the server have to know."""
    file = settings().drain_file
    return file is not None and file.exists()


def refuse_when_draining() -> None:
    """Raises the Problem of a submission that comes too late."""
    if draining():
        detail = f"{TOLD}; nothing was recorded, try again when it is back"
        raise Problem(Kind.DRAINING, detail, {"Retry-After": str(RETRY_AFTER_S)})
