"""Identifies this node's compilers for the heartbeat, in a process of its own, because that loads torch."""

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


class ToolchainProbe:
    """`identity` is None until the probe has finished, some seconds after `start`; see `tasks.node.toolchain`."""

    def __init__(self) -> None:
        self.identity: str | None = None
        self._process: subprocess.Popen[str] | None = None
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="toolchain", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, and kill the probe if it still runs."""
        self._stopping.set()
        if self._process is not None:
            self._process.kill()

    def _run(self) -> None:
        while self.identity is None and not self._stopping.is_set():
            try:
                self.identity = self._identify()
            except Exception as error:
                if not self._stopping.is_set():
                    problem = "no builder can build for this worker: its compilers cannot be identified, retrying"
                    log.warning("%s: %s: %s", problem, type(error).__name__, error)
                self._stopping.wait(ASK_AGAIN_S)

    def _identify(self) -> str:
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
        output, _ = self._process.communicate()
        if self._process.returncode:
            raise ChildProcessError(f"exit status {self._process.returncode}")
        return output.strip()


if __name__ == "__main__":
    from sandbox.isolation.rlimits import die_with_parent
    from tasks.node.toolchain import Compilers

    die_with_parent(os.getppid())
    print(Compilers(settings().state_dir / "toolchains").identity)
