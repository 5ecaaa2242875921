"""Whether this host can give a set of rights, and how an interpreter is started that has them.

A host that cannot give a set skips its tests. With RIGHTS_REQUIRED=1 they fail: .ci/run sets it as root on Debian.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from domain.paths import ROOT
from sandbox.isolation import landlock
from tests.rights.rights_sets import ORDINARY, Rights


def why_not(rights: Rights) -> str | None:
    """Why this host cannot give those rights; None where it can."""
    if landlock.abi() < landlock.OLDEST_ABI:
        return "the kernel has no Landlock"
    if os.geteuid() != 0:
        return None if rights is ORDINARY else "the tests are not run as root"
    done = subprocess.run(
        [sys.executable, "-c", "from tests.rights.restricted_environment import new_mounts; new_mounts()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return f"no mounts of one's own: {done.stderr.strip().splitlines()[-1:]}" if done.returncode else None


def require(rights: Rights) -> Rights:
    """The same; skips the test where this host cannot give them, or fails it with RIGHTS_REQUIRED=1."""
    reason = why_not(rights)
    if reason is not None:
        message = f"this host cannot give the rights {rights.name!r}: {reason}"
        pytest.fail(message) if os.environ.get("RIGHTS_REQUIRED") == "1" else pytest.skip(message)
    return rights


@contextmanager
def writable_folder(rights: Rights) -> Iterator[Path]:
    """What a process with those rights can write. Not below /tmp, which a container has for itself."""
    folder = Path(tempfile.mkdtemp(prefix=f"rights-{rights.name}-", dir="/var/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def interpreter(rights: Rights, folder: Path) -> list[str]:
    """Starts an interpreter with those rights, which can write `folder`."""
    if os.geteuid() != 0:
        return [sys.executable]
    return [sys.executable, "-m", "tests.rights.restricted_environment", rights.name, str(folder)]
