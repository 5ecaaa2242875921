"""An interpreter that every user of the machine may read, as a container has one: ours may lie in root's home."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

from domain.paths import ROOT
from sandbox.isolation.file_access import out_of_reach

SYSTEMS = Path("/usr/bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
IN_REACH = """
import sys, pathlib
from sandbox.isolation.file_access import out_of_reach
sys.exit(bool(out_of_reach(pathlib.Path())))
"""


@dataclass(frozen=True)
class Interpreter:
    """`environment` lets it find the libraries."""

    executable: str
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))


def readable_by_all() -> Interpreter | None:
    """Ours where it is one, else the system's of the same version with our libraries; None where that is not it."""
    if out_of_reach(ROOT) is None:
        return Interpreter(sys.executable)
    found = Interpreter(str(SYSTEMS), {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")})
    if not SYSTEMS.exists():
        return None
    done = subprocess.run([found.executable, "-c", IN_REACH], cwd=ROOT, env=found.environment, check=False)
    return found if done.returncode == 0 else None
