"""A load, its faults, and the books: accepted = terminal, one end each, nothing left behind."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import httpx
import psutil

from domain.job import State
from profiling.gpu.monitor import CardMonitor, CardSample
from tasks.jobs.job_store import MAX_ATTEMPTS, JobView
from tests.chaos import load
from tests.chaos.faults import KINDS, Fault, Missed
from tests.chaos.ledger import Ledger
from tests.chaos.load import Job
from tests.chaos.service import Service
from tests.tasks.example_jobs import until

OPEN = 12
"""Jobs that are not done at a moment: enough that every fault meets some, few enough that all end soon after it."""

PAUSE_S = 0.05
END_S = 300.0
GPU_SLACK = 64 << 20


@dataclass
class Books:
    """What was done, and what became of it. `trouble` is empty if every promise was kept."""

    seed: int
    jobs: int = 0
    seconds: float = 0.0
    struck: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    attempts: Counter[int] = field(default_factory=Counter)
    sent_again: int = 0
    longest_away_s: float = 0.0
    """The longest that Redis was away at once."""
    trouble: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: {self.jobs} jobs accepted and ended in {self.seconds:.0f} s, "
            f"{self.struck.total()} faults; {self.sent_again} submissions sent again under their key",
            "faults: " + ", ".join(f"{count} {name}" for name, count in sorted(self.struck.items())),
            "ends: " + ", ".join(f"{count} {name}" for name, count in sorted(self.ends.items())),
            "attempts: " + ", ".join(f"{count} jobs {number}" for number, count in sorted(self.attempts.items())),
            f"Redis away: {self.longest_away_s:.0f} s at the longest",
        ]
        if self.missed:
            lines.append("met nobody, tried again: " + ", ".join(f"{n} {name}" for name, n in self.missed.items()))
        return "\n".join([*lines, *(self.trouble or ["0 lost, 0 doubled, 0 left behind"])])


class Campaign:
    """On a running service. `faults` of every kind, spread over the time that the jobs take."""

    def __init__(self, made: Service, ledger: Ledger, *, jobs: int, faults: int, seed: int) -> None:
        self._made = made
        self._ledger = ledger
        self._seed = seed
        self._jobs = jobs
        self._draw = random.Random(seed + 1)
        self._cancelled: set[str] = set()
        self._submitted: dict[str, Job] = {}
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._plan = [kind for kind in KINDS for _ in range(faults)]
        self._draw.shuffle(self._plan)
        self.books = Books(seed)
        self._card = CardMonitor(made.gpu)

    def run(self, told: Callable[[str], None] = lambda line: None) -> Books:
        """Stops the service at the end. Raises what should not happen at all; promises that were broken are told."""
        began, memory = time.monotonic(), self._card_memory()
        submitter = threading.Thread(target=self._submit_all, name="submitter", daemon=True)
        submitter.start()
        self._strike_all(told)
        self._over.set()
        submitter.join()
        if self._failure is not None:
            raise self._failure
        self._put_right()
        until(lambda: not self._open(), END_S)
        self.books.longest_away_s = max(self._made.absences_s, default=0.0)
        self.books.jobs, self.books.seconds = len(self._submitted), time.monotonic() - began
        self._check(self._ledger.balance(self._made.url))
        self._made.stop()
        self._made.assert_nothing_left()
        until(lambda: self._card_memory() <= memory + GPU_SLACK, 30.0)
        return self.books

    def _submit_all(self) -> None:
        """Keeps OPEN jobs going until both the jobs and the faults are done: no fault without a load."""
        try:
            for job in self._load():
                self._submit(job)
                while self._open() >= OPEN:
                    time.sleep(PAUSE_S)
        except BaseException as error:
            self._failure = error

    def _load(self) -> Iterator[Job]:
        yield from load.jobs(self._jobs, self._seed)
        for job in load.jobs(1_000_000, self._seed + 2):
            if self._over.is_set():
                return
            yield job

    def _submit(self, job: Job) -> None:
        """Again and again until it is accepted, under its idempotency key: an answer may have been lost."""
        while True:
            with suppress(httpx.TransportError):
                answer = httpx.post(
                    self._made.url + job.path, json=job.body, headers={"Idempotency-Key": job.key}, timeout=30
                )
                # Sent again under its key, it may have ended meanwhile: by a verdict, cancelled (409), failed (500).
                if job_id := answer.json().get("job_id"):
                    self._submitted[job_id] = job
                    self._ledger.enter(job_id)
                    return
                assert answer.status_code == 503, answer.text
            self.books.sent_again += 1
            time.sleep(PAUSE_S)

    def _open(self) -> int:
        return sum(not ends for ends in list(self._ledger.ends.values()))

    def _strike_all(self, told: Callable[[str], None]) -> None:
        plan, total = list(self._plan), len(self._plan)
        while plan and self._failure is None:
            kind = plan.pop()
            if self._strike(kind):
                done = total - len(plan)
                if done % 50 == 0:
                    told(f"{done} of {total} faults, {len(self._submitted)} jobs submitted")
            else:
                plan.insert(0, kind)
                if self.books.missed[kind.__name__] > total:
                    raise AssertionError(f"{kind.__name__} meets nobody")
            self._put_right()

    def _strike(self, kind: type[Fault]) -> bool:
        try:
            kind(self._made, self._draw, self._cancelled).strike()
        except (Missed, psutil.NoSuchProcess):
            self.books.missed[kind.__name__] += 1
            return False
        self.books.struck[kind.__name__] += 1
        return True

    def _put_right(self) -> None:
        """What supervises processes elsewhere: whatever ended by itself is a fault of the service."""
        for name, process in self._made.processes.items():
            assert process.poll() is None, f"{name} ended with {process.returncode}: {self._made.log(name)[-3000:]}"

    def _check(self, views: dict[str, JobView]) -> None:
        for job_id, view in views.items():
            verdict = str(view.result["verdict"]) if view.result else view.state.value
            self.books.ends[verdict] += 1
            self.books.attempts[view.attempt] += 1
            if view.state is State.CANCELLED and job_id not in self._cancelled:
                self._complain(view, "was cancelled by nobody")
            if view.state is State.FAILED and len(view.failed_attempts) != MAX_ATTEMPTS:
                self._complain(view, "failed before its last attempt")
            if view.state is State.COMPLETED and verdict != self._submitted[job_id].verdict:
                self._complain(view, f"should be {self._submitted[job_id].verdict}")

    def _complain(self, view: JobView, what: str) -> None:
        self.books.trouble.append(f"{self._submitted[view.job_id].key} {what}: {view}")

    def _card_memory(self) -> int:
        sample = self._card.sample()
        return (sample.memory_used_bytes or 0) if isinstance(sample, CardSample) else 0
