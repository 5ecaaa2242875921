"""The version of this package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "kernel-eval-client"


def installed_version() -> str:
    """As it was installed; "0+source" for a checkout on the path that is not."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "0+source"
