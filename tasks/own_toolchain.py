"""What identifies this node's compilers, for its heartbeat: found out by a process of its own, as that takes torch."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from threading import Thread

from domain.settings import settings

ROOT = Path(__file__).resolve().parent.parent

log = logging.getLogger(__name__)


class OwnToolchain:
    """`identity` is None until it is known, some seconds after `start`; `tasks.compilers` says what is in it."""

    def __init__(self) -> None:
        self.identity: str | None = None
        self._process: subprocess.Popen[str] | None = None
        self._thread = Thread(target=self._ask, name="toolchain", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the process, if it is still at it."""
        if self._process is not None:
            self._process.kill()

    def _ask(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tasks.own_toolchain"],
            cwd=ROOT,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},  # noqa: TID251 - the worker's own, handed on
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        told, _ = self._process.communicate()
        if self._process.returncode:
            log.warning("nobody builds for this worker: what identifies its compilers cannot be found out")
        else:
            self.identity = told.strip()


if __name__ == "__main__":
    from sandbox.limits import die_with_parent
    from tasks.compilers import Compilers

    die_with_parent(os.getppid())
    print(Compilers(settings().state_dir / "toolchains").identity)
