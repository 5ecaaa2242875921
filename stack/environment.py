"""The environment of the stack, and the one that it gives to its processes."""

from __future__ import annotations

import os
from pathlib import Path

from domain.paths import ROOT
from domain.settings import Settings

PERSISTENT = "/var/tmp"


def is_set(variable: str) -> bool:
    """Whether the user has set the variable, even to its default."""
    return bool(os.environ.get(variable))


def visible_devices() -> str | None:
    """CUDA's own restriction of the GPUs, if there is one; empty for no GPU."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if visible == "-1" else visible


def lasting_folder(settings: Settings) -> Path:
    """The folder for data that lasts until the next start: STATE_DIR, else the user's state folder."""
    if is_set("STATE_DIR"):
        return ROOT / settings.state_dir
    configured = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (configured if configured.is_absolute() else Path.home() / ".local" / "state") / "kernel-eval"


def scratch() -> str | None:
    """Parent of the folder of a running stack; None for the default folder of temporary files.

    Not below /tmp, unless TMPDIR says so: a submission has its own folder there (`sandbox.isolation.namespaces`).
    """
    return PERSISTENT if not is_set("TMPDIR") and os.access(PERSISTENT, os.W_OK | os.X_OK) else None


def for_child(settings: Settings, temporary: Path, **more: str) -> dict[str, str]:
    """The environment of one process of the stack: the stack's own, with the current settings.

    `temporary` is its folder for temporary files, which the stack removes even if the process is killed.
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
