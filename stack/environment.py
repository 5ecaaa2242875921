"""The environment that the stack was started in, and what it hands on to its processes."""

from __future__ import annotations

import os
from pathlib import Path

from domain.paths import ROOT
from domain.settings import Settings

"""The project's folder: every process is started here, so that `api`, `tasks` and `celeryconfig` are importable."""
PERSISTENT = "/var/tmp"


def is_given(variable: str) -> bool:
    """Whether the user set the variable, be it to its default."""
    return bool(os.environ.get(variable))


def visible_devices() -> str | None:
    """CUDA's own restriction of the GPUs, when there is one; empty for none of them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if visible == "-1" else visible


def lasting_folder(settings: Settings) -> Path:
    """For what has to be there at the next start: STATE_DIR, else the user's own folder for such things."""
    if is_given("STATE_DIR"):
        return ROOT / settings.state_dir
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".local" / "state") / "kernel-eval"


def scratch() -> str | None:
    """Where the folder of a running stack is made; None for where temporary files go anyway.

    Not below /tmp, unless TMPDIR says so: a submission has its own folder in that place
    (`sandbox.isolation.namespaces`).
    """
    return PERSISTENT if not is_given("TMPDIR") and os.access(PERSISTENT, os.W_OK | os.X_OK) else None


def for_child(settings: Settings, temporary: Path, **more: str) -> dict[str, str]:
    """The environment of one process of the stack: ours, with the settings as they hold now.

    `temporary` is its folder for temporary files: what a killed process leaves there goes with the stack.
    """
    return {
        **os.environ,
        "CELERY_BROKER_URL": settings.broker_url,
        "HOST": settings.host,
        "PORT": str(settings.port),
        "LOG_LEVEL": settings.log_level,
        "LOG_FORMAT": settings.log_format,
        "STATE_DIR": str(settings.state_dir),
        "LEASE_DIR": str(settings.lease_dir),
        "JOB_TTL": str(settings.job_ttl),
        "DRAIN_FILE": str(settings.drain_file or ""),
        "ENABLE_DEVICE_METRICS": str(settings.enable_device_metrics).lower(),
        "REQUIRE_API_KEYS": settings.require_api_keys,
        "TMPDIR": str(temporary),
        "PYTHONUNBUFFERED": "1",
        **more,
    }
