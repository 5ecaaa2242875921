"""What an answer depends on beside the request: a worker's device, its libraries, and our own code, as one digest."""

from __future__ import annotations

import hashlib
import json
import platform
from functools import cache

from domain.paths import ROOT
from tasks.node.device_info import Device

JUDGES = ("domain", "backends", "sandbox", "profiling", "validation", "tasks")
"""The packages that decide about an answer."""


def digest(device: Device, versions: dict[str, str]) -> str:
    """The same for two workers that would answer the same request alike, as far as is known."""
    facts = [device.model, device.driver, platform.python_version(), platform.machine(), sorted(versions.items())]
    return hashlib.sha256(json.dumps([*facts, _code()]).encode()).hexdigest()[:16]


@cache
def _code() -> str:
    found = hashlib.sha256()
    for package in JUDGES:
        for source in sorted((ROOT / package).rglob("*.py")):
            found.update(source.read_bytes())
    return found.hexdigest()
