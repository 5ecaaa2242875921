"""`PYTHONPATH=client python -m benchmarks.many [--jobs N]`: N submissions through `Client.map`, without a loss.

The service is its own, on the CPU. It is restarted after a third of the submissions. After two thirds all of its
processes, Redis too, are killed and started again. Every submission runs, prints its number, and gets a wrong result.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import httpx
import psutil
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.endurance import MIB, NOTHING, REFERENCE
from benchmarks.overhead import BenchmarkError
from domain.paths import ROOT
from kernel_eval_client import Client, Submission, torch
from sandbox.isolation.uid import allow_traversal
from stack.redis_server import free_port
from stack.terminal import Terminal

CONCURRENCY = 64
READY_S = 120.0
STOP_S = 90.0
PROGRESS_REPORTS = 20
"""How often the client's memory is recorded, and printed where there is no terminal."""


class Service:
    """A `make serve` that keeps its jobs between starts."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        folders = {"LOG_DIR": folder / "logs", "TMPDIR": folder / "tmp", "XDG_STATE_HOME": folder / "state"}
        for folder_of_service in folders.values():
            folder_of_service.mkdir()
        variables = {"PORT": self.port, "GPU_DEVICE": "cpu", **folders}
        self._command = ["env", "-u", "CELERY_BROKER_URL", *(f"{name}={value}" for name, value in variables.items())]
        self._process = self._started()

    def restart(self) -> None:
        """Restarts it as an operator does."""
        self.stop()
        self._process = self._started()

    def crash(self) -> None:
        """Kills all processes at once, then starts it again."""
        for process in psutil.Process(self._process.pid).children(recursive=True):
            process.kill()
        self._process.kill()
        self._process.wait()
        self._process = self._started()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        if self._process.wait(STOP_S) != 0:
            raise BenchmarkError("the service did not stop as it should; its logs tell why")

    def _started(self) -> subprocess.Popen[bytes]:
        command = [*self._command, sys.executable, "-m", "stack", "serve"]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + READY_S
        while not self._healthy():
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkError("the service did not start; its logs tell why")
            time.sleep(0.2)
        return process

    def _healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=5, trust_env=False).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    jobs: int = parser.parse_args().jobs
    console = Terminal(columns=120)
    with tempfile.TemporaryDirectory(prefix="kernel-eval-many-") as folder:
        allow_traversal(Path(folder))
        service = Service(Path(folder))
        try:
            return _judge(service, jobs, console)
        finally:
            service.stop()


def _judge(service: Service, jobs: int, console: Terminal) -> int:
    """Sends all submissions and compares the results with them, and with the service's own count."""
    own, memory = psutil.Process(), []
    came: Counter[int] = Counter()
    job_ids: set[str] = set()
    strange: list[str] = []
    restarts: list[Thread] = []
    began = time.monotonic()
    with Client(service.url) as client, _progress(console) as progress:
        bar = progress.add_task("judged", total=jobs)
        for finished in client.map(_submissions(jobs), concurrency=CONCURRENCY):
            came[finished.index] += 1
            if finished.result is None:
                strange.append(f"{finished.index}: {finished.error}")
            else:
                job_ids.add(finished.result.job_id)
                if finished.result.kernel.output.strip() != f"number {finished.index}":
                    strange.append(f"{finished.index}: {finished.result.verdict}, not its own answer")
            done = came.total()
            progress.update(bar, completed=done)
            if done % max(1, jobs // PROGRESS_REPORTS) == 0:
                memory.append(own.memory_info().rss / MIB)
                if not console.is_terminal:
                    console.print(f"{time.monotonic() - began:5.0f} s  {done} judged, client {memory[-1]:.1f} MiB")
            if done in (jobs // 3, 2 * jobs // 3):
                restarts.append(Thread(target=service.restart if done == jobs // 3 else service.crash))
                restarts[-1].start()
    for restart in restarts:
        restart.join()
    seconds = time.monotonic() - began
    counted = httpx.get(f"{service.url}/stats", timeout=60, trust_env=False).json()["job_stats"]["by_status"]
    recorded = {state: count for state, count in counted.items() if count}
    console.print(f"{jobs} submissions in {seconds:.0f} s, {jobs / seconds:.1f} a second; client {_span(memory)}")
    lost, doubled = jobs - len(came), came.total() - len(came)
    console.print(f"lost {lost}, doubled {doubled}, not as sent {len(strange)}; the service has {recorded}")
    for each in strange[:PROGRESS_REPORTS]:
        console.print(each)
    right = not (lost or doubled or strange) and len(job_ids) == jobs and recorded == {"completed": jobs}
    return 0 if right and len(restarts) == 2 else 1


def _submissions(jobs: int) -> Iterator[Submission]:
    reference = torch(REFERENCE)
    for number in range(jobs):
        yield Submission(torch(f"print('number {number}')\n{NOTHING}"), reference=reference, num_trials=1)


def _span(memory: list[float]) -> str:
    return f"{memory[0]:.1f} MiB, at the end {memory[-1]:.1f}, at most {max(memory):.1f}" if memory else "not measured"


def _progress(console: Terminal) -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


if __name__ == "__main__":
    sys.exit(main())
