"""Everything that is broken on purpose: one class a kind, each strikes once and puts back what the service needs."""

from __future__ import annotations

import random
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import httpx
import psutil

from domain.job import State
from tests.chaos.service import START_S, Service
from tests.tasks.example_jobs import until

MEET_S = 20.0
"""To find somebody in the state in which the fault is to meet him."""

LONGEST_AWAY_S = 60.0
FROZEN_S = 6.0
"""Longer than an owner may be silent (tests/chaos/short_timeouts.py): his job is given to another before he wakes."""


class Missed(Exception):
    """Nobody was there to be struck; the fault is tried again later."""


class Fault(ABC):
    """A kind of fault, on one service. Everything that is random comes from `draw`."""

    def __init__(self, made: Service, draw: random.Random, cancelled: set[str]) -> None:
        self.made = made
        self.draw = draw
        self.cancelled = cancelled
        """The jobs whose cancellation was asked for."""

    @abstractmethod
    def strike(self) -> None:
        """Do it. Raises Missed."""

    def some_worker(self) -> str:
        """One that has a zygote."""
        return self.draw.choice(_wait(lambda: sorted(name for name in self.made.workers if self.made.zygotes(name))))

    def busy(self, state: State) -> set[str]:
        """The workers that have a job in that state now."""
        names = {(view.worker or "").removesuffix("@test") for view in self.made.records.list(state=state)}
        return names & self.made.workers


class Runner(Fault):
    """The process that a submission runs in, which it was not that killed it."""

    state = State.RUNNING

    def strike(self) -> None:
        self.draw.choice(_wait(self._met)).kill()

    def _met(self) -> list[psutil.Process]:
        """Of each worker with a job in that state, the runner before the newest: that is the standby, forked when the
        one before it was given its submission. A zygote that is still starting has none.
        """
        runners = [
            sorted(self.made.runners(name), key=lambda process: (process.create_time(), process.pid))
            for name in sorted(self.busy(self.state))
        ]
        return [each[-2] for each in runners if len(each) > 1]


class Builder(Runner):
    state = State.BUILDING


class Zygote(Fault):
    def strike(self) -> None:
        every = _wait(lambda: [each for name in sorted(self.made.workers) for each in self.made.zygotes(name)])
        self.draw.choice(every).kill()


class PoolChild(Fault):
    def strike(self) -> None:
        every = _wait(lambda: [each for name in sorted(self.made.workers) for each in self.made.pool_children(name)])
        self.draw.choice(every).kill()


class Worker(Fault):
    """Its main process; what is below it dies by itself. Started again under its name."""

    def strike(self) -> None:
        name = self.some_worker()
        self.made.kill(name)
        self.made.start_worker(name, 1)


class Node(Fault):
    """Every process of a worker at once, and it never comes back: another one, of another name, is started."""

    def strike(self) -> None:
        name = self.some_worker()
        for process in self.made.below(name):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.made.kill(name)
        self.made.start_worker(f"n{self.made.started}", 1)


class Frozen(Fault):
    """A node that is cut off: it neither works nor speaks, is given up, and then goes on as if nothing had been."""

    def strike(self) -> None:
        name = self.some_worker()
        family = [psutil.Process(self.made.processes[name].pid), *self.made.below(name)]
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        time.sleep(FROZEN_S)  # The fault itself, no waiting for anything.
        for process in reversed(family):
            with suppress(psutil.NoSuchProcess):
                process.resume()


class Drain(Fault):
    """SIGTERM, as a rolling restart does: it finishes what it runs, and ends well."""

    def strike(self) -> None:
        name = self.some_worker()
        process = self.made.processes[name]
        # One that is being started has nothing to finish, and simply dies of it.
        until(lambda: _catches(process.pid, signal.SIGTERM), START_S)
        process.send_signal(signal.SIGTERM)
        status = process.wait(timeout=START_S)
        assert status == 0, f"{name} was asked to stop and ended with {status}: {self.made.log(name)[-3000:]}"
        del self.made.processes[name]
        self.made.start_worker(name, 1)


class GunicornWorker(Fault):
    def strike(self) -> None:
        self.draw.choice(_wait(lambda: self.made.below("api"))).kill()


class Gunicorn(Fault):
    def strike(self) -> None:
        below = self.made.below("api")
        self.made.kill("api")
        for process in below:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(below, timeout=START_S)
        self.made.start_api()


class RedisRestart(Fault):
    def strike(self) -> None:
        self.made.kill("redis")
        self.made.start_redis()


class RedisAway(Fault):
    """Once for as long as is promised, the first time; then mostly for a second or two."""

    longest_s = LONGEST_AWAY_S

    def strike(self) -> None:
        drawn = min(self.longest_s, 0.5 * self.draw.paretovariate(0.9))
        away_s = drawn if self.made.absences_s else self.longest_s
        self.made.kill("redis")
        time.sleep(away_s)  # The fault itself.
        self.made.start_redis()
        self.made.absences_s.append(away_s)


class Cancel(Fault):
    """By the owner: one job, or a handful at once, whatever they are doing."""

    def strike(self) -> None:
        states = [state for state in State if not state.terminal]
        ids = _wait(lambda: sorted(view.job_id for state in states for view in self.made.records.list(state=state)))
        chosen = self.draw.sample(ids, min(len(ids), self.draw.choice((1, 1, 1, 3))))
        self.cancelled |= set(chosen)
        with suppress(httpx.TransportError):
            if len(chosen) == 1:
                answer = httpx.delete(f"{self.made.url}/job/{chosen[0]}", timeout=30)
            else:
                answer = httpx.post(f"{self.made.url}/jobs/cancel", json={"job_ids": chosen}, timeout=30)
            assert answer.status_code in (200, 202), answer.text


Found = TypeVar("Found")

KINDS: tuple[type[Fault], ...] = (
    *(Runner, Builder, Zygote, PoolChild, Worker, Node, Frozen, Drain),
    *(GunicornWorker, Gunicorn, RedisRestart, RedisAway, Cancel),
)


def _catches(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for that signal (proc_pid_status(5), SigCgt)."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    caught = next(line for line in lines if line.startswith("SigCgt:")).split()[1]
    return bool(int(caught, 16) >> (number - 1) & 1)


def _wait(look: Callable[[], list[Found]]) -> list[Found]:
    """What is found, once something is. Raises Missed."""
    found: list[Found] = []

    def there() -> bool:
        with suppress(psutil.NoSuchProcess):
            found[:] = look()
        return bool(found)

    try:
        until(there, MEET_S)
    except AssertionError:
        raise Missed from None
    return found
