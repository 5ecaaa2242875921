"""`make serve` in a process of its own: it takes every process below it along when it stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from domain.paths import ROOT
from tests.conftest import free_port

READY_S = 120.0
STOP_S = 30.0
MARK = "STACK_TEST_MARK"


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


@dataclass
class Serving:
    """A `python -m stack serve` with a home and a scratch folder of its own."""

    process: subprocess.Popen[bytes]
    url: str
    mark: str
    folder: Path

    @property
    def scratch(self) -> Path:
        return self.folder / "scratch"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def queue(self) -> Path:
        """Where the jobs are kept for the next start."""
        return self.folder / "state" / "kernel-eval" / f"redis-{self.port}"

    @property
    def said(self) -> str:
        """On the console."""
        return (self.folder / "console").read_text()

    def get(self, path: str) -> httpx.Response | None:
        try:
            return httpx.get(self.url + path, timeout=10)
        except httpx.TransportError:
            return None

    def ready(self) -> bool:
        """It has said so: from here on it restarts what dies, and no longer gives up."""
        assert self.process.poll() is None, self.log()
        log = self.logs / "stack.log"
        return log.exists() and "ready at" in log.read_text()

    def healthy(self) -> bool:
        assert self.process.poll() is None, self.log()
        answer = self.get("/health")
        return answer is not None and answer.status_code == 200

    def job(self, job_id: str) -> dict[str, Any]:
        answer = self.get(f"/job/{job_id}")
        return answer.json() if answer is not None and answer.is_success else {}

    def log(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.logs.glob("*.log")))

    def marked(self) -> list[psutil.Process]:
        """Every process that has inherited this test's environment, whoever its parent is by now."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@contextmanager
def serve(folder: Path, port: int = 0, *, piped: bool = False, **settings: str) -> Iterator[Serving]:
    """Started on entry, not yet ready; stopped at the latest on exit. `settings` are environment variables.

    With the folder and the port of an earlier one it goes on where that has stopped. Its console is a file, or `piped`.
    """
    for name in ("scratch", "home"):
        (folder / name).mkdir(exist_ok=True)
    # Another's "ready" must not be taken for its own.
    for log in (folder / "logs").glob("*"):
        log.unlink()
    folder.chmod(0o755)
    port, mark = port or free_port(), uuid.uuid4().hex
    # Settings of the tests' own process, or of another service that runs here, must not reach it.
    own = ("CELERY_BROKER_URL", "STATE_DIR", "LEASE_DIR", "HOST", "GPU_DEVICE", "MAX_WORKERS", "REQUIRE_API_KEYS")
    environment = {name: value for name, value in os.environ.items() if name not in own} | {
        "PORT": str(port),
        "LOG_DIR": str(folder / "logs"),
        "TMPDIR": str(folder / "scratch"),
        "HOME": str(folder / "home"),
        "XDG_STATE_HOME": str(folder / "state"),
        "DRAIN_SECONDS": "6",
        MARK: mark,
        **settings,
    }
    with (folder / "console").open("wb") as console:
        process = subprocess.Popen(
            [sys.executable, "-m", "stack", "serve"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE if piped else console,
            start_new_session=True,
        )
    try:
        yield Serving(process, f"http://127.0.0.1:{port}", mark, folder)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(timeout=STOP_S)


def assert_nothing_left(serving: Serving, processes: list[psutil.Process]) -> None:
    assert serving.process.wait(timeout=STOP_S) == 0
    assert [process for process in processes if process.is_running()] == []
    assert serving.marked() == []
    assert list(serving.scratch.rglob("*")) == []
    assert [path for path in (serving.folder / "home").rglob("*") if path.is_file()] == []
    if serving.queue.exists():
        assert serving.queue.stat().st_mode & 0o077 == 0, "sources and results are for nobody else"
        assert {path.name for path in serving.queue.iterdir()} == {"redis.conf", "appendonlydir"}
    assert {path.suffix for path in serving.logs.iterdir()} == {".log"}
