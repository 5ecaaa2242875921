"""Runs code in a process of its own, because what it pretends there stays pretended."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from domain.paths import ROOT

_TELL = """
import json, torch
def tell(**values):
    print(json.dumps(values))
"""


def told_by(code: str) -> dict[str, Any]:
    """All that the code told by `tell(name=value)`."""
    done = subprocess.run([sys.executable, "-c", _TELL + code], capture_output=True, text=True, check=True, cwd=ROOT)
    told: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        told |= json.loads(line)
    return told
