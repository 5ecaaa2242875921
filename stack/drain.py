"""Stops a lasting service: workers finish running jobs, and queued jobs stay in Redis for the next start."""

from __future__ import annotations

import time

from redis import Redis
from redis.exceptions import RedisError

from domain.settings import Settings
from stack.processes import node_name
from stack.shutdown import Stop, ignore_signals, stop_on_signals
from stack.supervisor import STACK_NAME, Supervisor
from tasks.jobs.job_store import ACTIVE, JobStore
from tasks.jobs.job_view import JobView

SLICE_S = 0.2
REDIS_S = 2.0
MOST = 10_000
"""Maximum number of running jobs that are listed: more than all workers of one Redis handle at once."""

SAME_S = 1.0
"""Signals within this time, in s, count as one: `make` forwards the SIGTERM that its whole group was sent."""

AGAIN = "Ctrl-C again, or a second SIGTERM, ends them now"


class Drain:
    """Drains this machine's workers, which take their jobs from the Redis of `settings`. Call `run` once.

    Workers have `drain_seconds` to finish their jobs, or less if a second signal comes. Other programs keep running.
    Jobs that had to be ended are queued again.
    """

    def __init__(self, supervisor: Supervisor, settings: Settings) -> None:
        self._supervisor = supervisor
        self._limit_s = settings.drain_seconds
        self._names = {node_name(program) for program in supervisor.draining}
        redis = Redis.from_url(settings.broker_url, socket_connect_timeout=REDIS_S, socket_timeout=REDIS_S)
        self._records = JobStore(redis, settings.job_ttl)

    def run(self) -> None:
        """Returns when no worker is left."""
        if not self._names:
            return
        self._supervisor.ask_to_drain()
        stop_on_signals(SAME_S)
        try:
            self._wait()
        except Stop:
            self._say("asked to stop again: running jobs are ended")
        finally:
            ignore_signals()
        cut_short = bool(self._supervisor.draining)
        self._supervisor.end_draining()
        try:
            for view in self._running() if cut_short else ():
                # At once: a new worker of the same name would be blamed for them.
                self._records.requeue(view.job_id, view.attempt, "its worker was stopped before the job had ended")
            if queued := self._records.queue_length():
                self._say(f"{_jobs(queued, 'queued')} left in Redis")
        except RedisError as error:
            self._say(f"Redis does not answer ({type(error).__name__}): the next worker queues again what was running")

    def _wait(self) -> None:
        began = idle_since = time.monotonic()
        reported: int | None = 0
        while self._supervisor.draining:
            running = self._count()
            if running != reported:
                self._say(self._waiting(running, first=reported == 0))
                reported = running
            now = time.monotonic()
            if running != 0:
                idle_since = now
            if now - began > self._limit_s:
                self._say(f"{self._limit_s:g} s (DRAIN_SECONDS) are over: running jobs are ended")
                return
            if now - idle_since > self._supervisor.grace_s:
                return  # A worker without jobs does not end.
            self._supervisor.tick(SLICE_S)

    def _waiting(self, running: int | None, *, first: bool) -> str:
        if running is None:
            return f"Redis does not say what runs; waiting for the workers, at most {self._limit_s:g} s. {AGAIN}"
        if running == 0:
            return "no job runs any more"
        message = f"waiting for {_jobs(running, 'running')}"
        return f"{message}, at most {self._limit_s:g} s. {AGAIN}" if first else message

    def _count(self) -> int | None:
        """The number of jobs that the workers run; None if Redis does not answer."""
        try:
            return len(self._running())
        except RedisError:
            return None

    def _running(self) -> list[JobView]:
        active = [view for state in ACTIVE for view in self._records.list(state=state, limit=MOST)]
        return [view for view in active if view.worker in self._names]

    def _say(self, text: str) -> None:
        self._supervisor.log.line(STACK_NAME, text)


def _jobs(count: int, state: str) -> str:
    return f"{count} {state} {'job' if count == 1 else 'jobs'}"
