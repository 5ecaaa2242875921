"""What became of every job of a test, watched from outside all the while, and whether the service's books agree."""

from __future__ import annotations

import json
from contextlib import suppress
from threading import Event, Thread
from typing import Any

import httpx
from redis import Redis
from redis.exceptions import RedisError

from domain.job import TERMINAL, State
from tasks.jobs.job_store import MAX_ATTEMPTS, JobStore
from tasks.jobs.job_view import JobView, TimelineEntry

LOOK_S = 0.02


class Ledger:
    """Looks at every record until it ends, and at last again. `ends` has each end that a job was seen with."""

    def __init__(self, url: str) -> None:
        self._redis = Redis.from_url(url, socket_timeout=5.0, socket_connect_timeout=1.0)
        self._records = JobStore(self._redis, ttl_s=600)
        self.ends: dict[str, set[str]] = {}
        self._over = Event()
        self._thread = Thread(target=self._run, name="ledger", daemon=True)
        self._thread.start()

    def enter(self, job_id: str) -> str:
        """Watch this job from now on."""
        self.ends[job_id] = set()
        return job_id

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._redis.close()

    def balance(self, url: str) -> dict[str, JobView]:
        """Every job as it ended. AssertionError unless each ended once, and the counters are the jobs' sum."""
        views = {job_id: self._last(job_id) for job_id in list(self.ends)}
        for job_id, view in views.items():
            self.ends[job_id].add(_end(view))
            assert len(self.ends[job_id]) == 1, f"{job_id} ended more than once: {self.ends[job_id]}"
            assert [step.stage for step in view.timeline].count("done") == 1, view.timeline
            assert (view.state is State.COMPLETED) == (view.result is not None), view
            failed, retries = len(view.failed_attempts), len(_retries(view))
            assert [entry.attempt for entry in view.failed_attempts] == list(range(1, failed + 1))
            # The last fault ends a job that has had its attempts, and one whose cancellation was asked for before it.
            ended_by_fault = failed - retries
            assert ended_by_fault == (view.state is State.FAILED) or (
                ended_by_fault == 1 and view.state is State.CANCELLED
            ), view.timeline
            assert view.attempt <= MAX_ATTEMPTS
        self._agree(views, httpx.get(f"{url}/stats", timeout=10).raise_for_status().json())
        return views

    def _agree(self, views: dict[str, JobView], stats: dict[str, Any]) -> None:
        states = [view.state for view in views.values()]
        assert stats["jobs_submitted"] == stats["job_stats"]["total_jobs"] == len(views)
        for state in State:
            assert stats["job_stats"]["by_status"][state.value] == states.count(state), state
        assert stats["jobs_completed"] == states.count(State.COMPLETED) == sum(stats["verdicts"].values())
        assert stats["jobs_failed"] == states.count(State.FAILED)
        assert stats["jobs_cancelled"] == states.count(State.CANCELLED)
        counters = self._records.counters()
        assert counters["requeued"] == sum(len(_retries(view)) for view in views.values())
        assert counters.get("run_seconds:count", 0) <= states.count(State.COMPLETED)
        assert counters["end_to_end_seconds:count"] == states.count(State.COMPLETED)

    def _last(self, job_id: str) -> JobView:
        view = self._records.get(job_id)
        assert view is not None, f"{job_id} is lost"
        assert view.state in TERMINAL, f"{job_id} has not ended: {view}"
        return view

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            with suppress(RedisError):  # It is away at times: that is what is being tested.
                # Those that have ended are looked at once more, in `balance`, and counted by the service all the while.
                for job_id in [job_id for job_id, ends in list(self.ends.items()) if not ends]:
                    view = self._records.get(job_id)
                    if view is not None and view.state in TERMINAL:
                        self.ends[job_id].add(_end(view))


def _retries(view: JobView) -> list[TimelineEntry]:
    return [step for step in view.timeline if step.stage == "queued"][1:]


def _end(view: JobView) -> str:
    return json.dumps([view.state, view.attempt, view.error, view.result], sort_keys=True)
