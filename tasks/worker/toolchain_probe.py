"""What identifies this node's compilers, for its heartbeat: found out by a process of its own, as that takes torch."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from threading import Event, Thread

from domain.paths import ROOT
from domain.settings import settings

ASK_AGAIN_S = 60.0

log = logging.getLogger(__name__)


class OwnToolchain:
    """`identity` is None until it is known, some seconds after `start`; `tasks.node.toolchain` says what is in it."""

    def __init__(self) -> None:
        self.identity: str | None = None
        self._process: subprocess.Popen[str] | None = None
        self._stopping = Event()
        self._thread = Thread(target=self._find_out, name="toolchain", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the process, if it is still at it."""
        self._stopping.set()
        if self._process is not None:
            self._process.kill()

    def _find_out(self) -> None:
        while self.identity is None and not self._stopping.is_set():
            try:
                self.identity = self._ask()
            except Exception as error:
                if not self._stopping.is_set():
                    problem = "no builder builds for this worker: its compilers cannot be identified, trying on"
                    log.warning("%s: %s: %s", problem, type(error).__name__, error)
                self._stopping.wait(ASK_AGAIN_S)

    def _ask(self) -> str:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tasks.worker.toolchain_probe"],
            cwd=ROOT,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},  # noqa: TID251 - the worker's own, handed on
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._stopping.is_set():
            self._process.kill()
        told, _ = self._process.communicate()
        if self._process.returncode:
            raise ChildProcessError(f"exit status {self._process.returncode}")
        return told.strip()


if __name__ == "__main__":
    from sandbox.isolation.rlimits import die_with_parent
    from tasks.node.toolchain import Compilers

    die_with_parent(os.getppid())
    print(Compilers(settings().state_dir / "toolchains").identity)
