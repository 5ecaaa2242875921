"""The service as single processes that a test may kill: Redis with its file, gunicorn, Celery workers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from domain.paths import ROOT
from domain.request import Request
from domain.settings import settings
from sandbox.isolation.file_access import SHARED_MEMORY
from sandbox.isolation.uid import FIRST_USER
from tasks.fleet.heartbeat import workers
from tasks.jobs.job_store import JobStore, JobView
from tasks.node import device_lease
from tasks.node.scratch_dir import ScratchDir
from tests.chaos.ledger import Ledger
from tests.conftest import die_with_parent, free_port, start_redis
from tests.tasks.broker import published_to
from tests.tasks.example_jobs import until

START_S = 90.0
MARK = "STACK_TEST_MARK"
HASTY = "tests.chaos.short_timeouts"
NUMBERS = re.compile(r"(?<![0-9A-Za-z])[0-9]{3,9}(?![0-9A-Za-z])")


class Service:
    """Everything in `folder`; nothing restarts what dies but the test."""

    def __init__(self, folder: Path, app: str, gpu: str | None = None) -> None:
        self.folder = folder
        self.gpu = gpu
        self.app = app
        self.mark = uuid.uuid4().hex
        self.redis_port, self.port = free_port(), free_port()
        self.redis_url = f"redis://127.0.0.1:{self.redis_port}/0"
        self.url = f"http://127.0.0.1:{self.port}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.redis = Redis.from_url(self.redis_url, retry=Retry(ExponentialBackoff(cap=0.2, base=0.01), 50))
        self.records = JobStore(self.redis, ttl_s=600)
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.absences_s: list[float] = []
        """How long Redis was away, each time that it was on purpose."""
        self._there_before = set(_shared())
        self.started = 0
        self.workers: set[str] = set()
        """Those that were started, and not killed since."""

    def start_redis(self) -> None:
        self.processes["redis"] = start_redis(self.folder, self.redis_port, "--appendfsync", "always")

    def start_api(self) -> None:
        command = [sys.executable, "-m", "gunicorn", "--config", "python:api.gunicorn_config", "api:create_app()"]
        self._start("api", command)
        until(self.answers, START_S)

    def start_worker(self, name: str, concurrency: int, **environment: str) -> None:
        """It takes the name `name@test` and leads a group of its own; whether it lives yet, `lives` tells."""
        command = [sys.executable, "-m", "celery", "--app", self.app, "worker", "--hostname", f"{name}@test"]
        options = ["--concurrency", str(concurrency), "--without-gossip", "--without-mingle", "--loglevel", "INFO"]
        self._start(name, command + options, **environment)
        self.workers.add(name)
        self.started += 1

    def lives(self, *names: str) -> bool:
        return {worker.name for worker in workers(self.redis)} == {f"{name}@test" for name in names}

    def answers(self) -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/health", timeout=5).status_code in (200, 503)
        return False

    def kill(self, name: str) -> None:
        """SIGKILL; returns when the process is gone. What is below it has to see to itself."""
        self.processes[name].kill()
        self.processes.pop(name).wait()
        self.workers.discard(name)

    def submit(self, request: Request) -> str:
        answer = httpx.post(f"{self.url}/evaluate", json=wire(request), timeout=30)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["job_id"])

    def view(self, job_id: str) -> JobView:
        view = self.records.get(job_id)
        assert view is not None, f"{job_id} is lost"
        return view

    def below(self, name: str) -> list[psutil.Process]:
        """All that this process has started, directly or not."""
        return psutil.Process(self.processes[name].pid).children(recursive=True)

    def pool_children(self, name: str) -> list[psutil.Process]:
        return psutil.Process(self.processes[name].pid).children()

    def zygotes(self, name: str) -> list[psutil.Process]:
        return [zygote for child in self.pool_children(name) for zygote in child.children()]

    def runners(self, name: str) -> list[psutil.Process]:
        return [runner for zygote in self.zygotes(name) for runner in zygote.children()]

    def job_folders(self) -> set[Path]:
        """One for each job whose pipeline runs, and those that killed owners have left."""
        return set((self.folder / "state" / "work").glob("worker-*/job-*"))

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def stop(self) -> None:
        """SIGTERM to all but Redis: who runs a job finishes it. AssertionError for one that does not end well."""
        names = [name for name in self.processes if name != "redis"]
        for name in names:
            self.processes[name].send_signal(signal.SIGTERM)
        for name in names:
            assert self.processes.pop(name).wait(timeout=START_S) == 0, self.log(name)[-5000:]

    def assert_nothing_left(self) -> None:
        """After `stop`: no process, no message, no lease, no file; no folder but what the next owner removes."""
        until(lambda: not self._marked(), 10.0)
        # Celery's pool makes a folder for its memory, whose file it deletes at once; a killed worker's stays, empty.
        left = [path for path in self.temporary.iterdir() if not path.match("pymp-*") or any(path.iterdir())]
        assert not left, left
        # What other tests have there for a moment goes.
        with suppress(AssertionError):
            until(lambda: not self._left_to_all(), 30.0)
        left = self._left_to_all()
        assert not left, left
        assert device_lease.stays_free("cpu", 0.0)
        work = self.folder / "state" / "work"
        ScratchDir(work).close()
        assert list(work.iterdir()) == []
        assert self.records.abandoned() == []
        assert [key for key in self.redis.keys("job:*:owner") if self.redis.ttl(key)] == []
        kept = [key.removesuffix(b":request") for key in self.redis.keys("job:*:request")]
        assert {self.redis.hget(job, "state") for job in kept} <= {b"failed", b"cancelled"}

    def kill_all(self) -> None:
        everyone: list[psutil.Process | subprocess.Popen[bytes]] = [*self._marked(), *self.processes.values()]
        for process in everyone:
            with suppress(psutil.Error, ProcessLookupError):
                process.kill()
        for process in self.processes.values():
            process.wait()

    def _marked(self) -> list[psutil.Process]:
        """Every process that has inherited this service's environment, whoever its parent is by now.

        A submission's has a clean one, with a home in this service's folder.
        """
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                own = process.environ()
                ours = own.get(MARK) == self.mark or own.get("HOME", "").startswith(str(self.folder))
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def _left_to_all(self) -> list[Path]:
        """Files in folders that are everybody's, of the service's user or of one of its jobs'."""
        return sorted(path for path, inode in set(_shared()) - self._there_before)

    def _start(self, name: str, command: list[str], **own: str) -> None:
        environment = {
            **os.environ,
            "CELERY_BROKER_URL": self.redis_url,
            "PORT": str(self.port),
            "STATE_DIR": str(self.folder / "state"),
            "LEASE_DIR": str(self.folder / "leases"),
            "TMPDIR": str(self.temporary),
            "CUDA_VISIBLE_DEVICES": self.gpu or "",
            MARK: self.mark,
            **own,
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, preexec_fn=die_with_parent
            )


def _shared() -> Iterator[tuple[Path, int]]:
    """Files of jobs' users in the folders that are everybody's, and of this user in shared memory; with their inodes.

    One that is named after a process that lives is that one's. This user's temporary files have their own folder.
    """
    for folder in (SHARED_MEMORY, Path(tempfile.gettempdir())):
        for path in folder.iterdir() if folder.is_dir() else ():
            with suppress(FileNotFoundError):
                status = path.lstat()
                ours = status.st_uid == os.geteuid() and folder == SHARED_MEMORY
                named = any(psutil.pid_exists(int(number)) for number in NUMBERS.findall(path.name))
                if (ours or status.st_uid >= FIRST_USER) and not named:
                    yield path, status.st_ino


def wire(request: Request) -> dict[str, Any]:
    """The request's body for POST /evaluate."""
    kernel = request.kernel
    body = {"source_code": kernel.source_code, "kernel_type": kernel.kernel_type.value}
    return {"kernel": body, "num_trials": request.num_trials, "timeout": request.timeout}


@contextmanager
def service(
    folder: Path, app: str = HASTY, gpu: str | None = None, **workers_: int
) -> Iterator[tuple[Service, Ledger]]:
    """Redis, gunicorn and these workers (name: concurrency), all up; this process publishes and leases with them."""
    (folder / "leases").mkdir()
    made = Service(folder, app, gpu)
    with ExitStack() as cleanup:
        patch = cleanup.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("LEASE_DIR", str(folder / "leases"))
        settings.cache_clear()
        cleanup.callback(settings.cache_clear)
        cleanup.callback(made.kill_all)
        made.start_redis()
        for name, concurrency in workers_.items():
            made.start_worker(name, concurrency)
        made.start_api()
        until(lambda: made.lives(*workers_), START_S)
        cleanup.enter_context(published_to(made.redis_url))
        ledger = Ledger(made.redis_url)
        cleanup.callback(ledger.close)
        try:
            yield made, ledger
        except BaseException:
            print(*(made.records.get(job_id) for job_id, ends in ledger.ends.items() if not ends), sep="\n")
            raise
