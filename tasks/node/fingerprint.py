"""A digest of everything except the request that a result depends on: a worker's device, libraries and our own code."""

from __future__ import annotations

import hashlib
import json
import platform
from functools import cache

from domain.paths import code_of
from tasks.node.device_info import Device

JUDGES = ("domain", "backends", "sandbox", "profiling", "validation", "tasks")
"""Packages whose code determines a result."""


def digest(device: Device, versions: dict[str, str]) -> str:
    """Equal for two workers that would, as far as known, produce the same result for the same request."""
    facts = [device.model, device.driver, platform.python_version(), platform.machine(), sorted(versions.items())]
    return hashlib.sha256(json.dumps([*facts, _code()]).encode()).hexdigest()[:16]


@cache
def _code() -> str:
    return hashlib.sha256(code_of(JUDGES)).hexdigest()
