"""`make serve` as its user has it: it comes up, it repairs itself, and Ctrl-C leaves nothing but logs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from stack.environment import ROOT

READY_S = 120.0
STOP_S = 30.0
MARK = "STACK_TEST_MARK"

HANGING = {
    "kernel": {"source_code": "def kernel_fn(x):\n    while True:\n        pass\n", "kernel_type": "torch"},
    "timeout": 60,
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
    scratch: Path
    logs: Path

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


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    for name in ("scratch", "home", "logs"):
        (tmp_path / name).mkdir()
    tmp_path.chmod(0o755)
    port, mark = free_port(), uuid.uuid4().hex
    # Settings of the tests' own process, or of another service that runs here, must not reach it.
    own = ("CELERY_BROKER_URL", "STATE_DIR", "LEASE_DIR", "HOST", "GPU_DEVICE", "MAX_WORKERS")
    environment = {name: value for name, value in os.environ.items() if name not in own} | {
        "PORT": str(port),
        "LOG_DIR": str(tmp_path / "logs"),
        "TMPDIR": str(tmp_path / "scratch"),
        "HOME": str(tmp_path / "home"),
        MARK: mark,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "stack", "serve"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    yield Serving(process, f"http://127.0.0.1:{port}", mark, tmp_path / "scratch", tmp_path / "logs")
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    process.wait(timeout=STOP_S)


def assert_nothing_left(serving: Serving, processes: list[psutil.Process]) -> None:
    assert serving.process.wait(timeout=STOP_S) == 0
    assert [process for process in processes if process.is_running()] == []
    assert serving.marked() == []
    assert list(serving.scratch.rglob("*")) == []
    home = serving.scratch.parent / "home"
    assert [path for path in home.rglob("*") if path.is_file()] == []
    assert {path.suffix for path in serving.logs.iterdir()} == {".log"}


def test_ctrl_c_in_the_middle_of_a_job_leaves_nothing_behind(serving: Serving) -> None:
    wait_for(serving.ready, READY_S, "it is ready")
    submitted = httpx.post(f"{serving.url}/evaluate", json=HANGING, timeout=30)
    assert submitted.status_code == 202, submitted.text
    job_id = submitted.json()["job_id"]
    wait_for(lambda: serving.job(job_id).get("state") == "running", READY_S, "the job runs")
    processes = serving.descendants()
    assert len(processes) > 4
    serving.process.send_signal(signal.SIGINT)
    serving.process.send_signal(signal.SIGINT)  # An impatient user; it changes nothing.
    assert_nothing_left(serving, processes)
    together = (serving.logs / "cuda_eval_server.log").read_text()
    assert "api    | " in together
    assert "0   | " in together  # cpu0 or gpu0


def test_ctrl_c_before_it_is_ready_leaves_nothing_behind(serving: Serving) -> None:
    wait_for(lambda: (serving.logs / "redis.log").exists(), READY_S, "the first process speaks")
    processes = serving.descendants()
    serving.process.send_signal(signal.SIGINT)
    assert_nothing_left(serving, processes)


def test_a_killed_worker_and_a_killed_server_are_replaced(serving: Serving) -> None:
    wait_for(serving.ready, READY_S, "it is ready")
    for words in (["celery", "worker"], ["gunicorn"], ["valkey-server"]):
        found = [child for child in psutil.Process(serving.process.pid).children() if _says(child, words)]
        assert len(found) == 1, words
        found[0].kill()
        wait_for(lambda found=found: not found[0].is_running(), STOP_S, f"{words} has ended")
        wait_for(serving.healthy, READY_S, f"/health answers 200 again without the killed {words}")
    assert (serving.logs / "stack.log").read_text().count("it is started again") == 3


def _says(process: psutil.Process, words: list[str]) -> bool:
    line = " ".join(process.cmdline())
    return all(word in line for word in words)


def test_a_taken_port_is_said_at_once(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        environment = {**os.environ, "PORT": str(taken.getsockname()[1]), "LOG_DIR": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "main.py"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=STOP_S
        )
    assert done.returncode == 1
    assert "choose another with PORT=8001" in done.stdout


@pytest.mark.parametrize(
    ("command", "given", "told"),
    [
        (["main.py"], {"PORT": "many"}, 'Environment variable "PORT" invalid: Not a valid integer.'),
        (["-m", "stack", "serve"], {"PORT": "many"}, 'Environment variable "PORT" invalid: Not a valid integer.'),
        (["-m", "stack", "serve"], {"PORT": "99999"}, "less than or equal to 65535"),
        (["main.py", "--port", "99999"], {}, "--port must be between 1 and 65535, not 99999"),
        (["main.py"], {"LOG_LEVEL": "loud"}, "Must be one of: debug, info, warning, error, critical."),
    ],
)
def test_a_setting_that_does_not_parse_is_named(
    command: list[str], given: dict[str, str], told: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "LOG_DIR": str(tmp_path), **given},
        capture_output=True,
        text=True,
        timeout=STOP_S,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert told in line


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_demo_ends_as_expected(tmp_path: Path) -> None:
    own = ("CELERY_BROKER_URL", "STATE_DIR", "PORT")
    environment = {name: value for name, value in os.environ.items() if name not in own} | {"LOG_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "stack", "demo"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdicts as expected" in done.stdout
