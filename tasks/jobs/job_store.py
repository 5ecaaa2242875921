"""Job records in Redis: the only authority on every job, changed only by compare-and-set.

docs/architecture.md lists every key and field ("What Redis holds of a job").
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Literal, cast

from redis import Redis

from domain.access import Key
from domain.job import STATE_OF_STAGE, Stage, State
from domain.request import Request
from tasks.jobs import counters
from tasks.jobs.admission import (
    UNLIMITED,
    Accepted,
    AcceptedJob,
    Admission,
    Limits,
    NewJob,
    Refusal,
    create_arguments,
)
from tasks.jobs.job_queue import Claim, JobQueue, Message, UnreadableRequest
from tasks.jobs.job_scripts import LUA, SHARED, transition
from tasks.jobs.job_summary import Summary
from tasks.jobs.job_view import JobView
from tasks.jobs.leaderboard import Leader
from tasks.jobs.result_reuse import reusable
from tasks.jobs.webhook_outbox import Webhook
from tasks.node.lua_script import LuaScript
from tasks.node.redis_client import text

__all__ = ["Claim", "JobStore", "JobView", "Message", "Pulse"]

MAX_ATTEMPTS = 3
LAST_PAUSE_S = 60
"""Seconds before the last attempt of a job, unless a worker that has not failed it takes jobs: a full disk may have
room again, and jobs that died together with their worker begin one after another. 0 for no pause."""
PULSE_TTL_S = 6
"""Seconds without a pulse after which the owner of an attempt counts as dead."""
MAX_PER_SWEEP = 500
REASON_CHARS = 2000
ACTIVE = (State.BUILDING, State.WAITING, State.RUNNING)

Pulse = Literal["go on", "cancel", "lost"]


class JobStore:
    """The records of all jobs. Every transition is one round trip, safe from any thread and process.

    A transition returns False if the caller no longer owns the attempt: the job was queued again or is terminal. The
    caller must stop then, and its results do not count. A terminal state is written exactly once.
    """

    def __init__(self, redis: Redis, ttl_s: int) -> None:
        """Results may be reused, and times of jobs foretell those of later ones, for `ttl_s` seconds."""
        self._redis = redis
        self._ttl_s = ttl_s
        self.queue = JobQueue(redis)
        self._create = transition(redis, "create_job", SHARED / "read_job.lua")
        self._read = LuaScript(redis, SHARED / "read_job.lua", LUA / "read_job.lua")
        self._expire = transition(redis, "expire_job")
        self._enter_stage = transition(redis, "enter_stage")
        self._pulse = transition(redis, "pulse")
        self._complete = transition(redis, "complete_job")
        self._fail = transition(redis, "fail_job")
        self._requeue = transition(redis, "requeue_job")
        self._cancel = transition(redis, "cancel_job")
        self._finish_cancelled = transition(redis, "finish_cancelled")
        self._cleanup = transition(redis, "cleanup_jobs")

    def create(
        self,
        job_id: str,
        request: Request,
        *,
        batch_id: str | None = None,
        key: Key | None = None,
        limits: Limits = UNLIMITED,
        webhook: Webhook | None = None,
        worker: str | None = None,
    ) -> AcceptedJob | Refusal:
        """Record a new job of `key` as queued, or return the refusal; a job that exists already stays as it is."""
        new = NewJob(job_id, request, webhook=webhook, worker=worker)
        arguments = create_arguments(new, batch_id=batch_id, key=key, limits=limits, read=True)
        return AcceptedJob.of_reply(job_id, self._create(*arguments))

    def create_many(
        self,
        jobs: Sequence[NewJob],
        *,
        batch_id: str | None = None,
        key: Key | None = None,
        limits: Limits = UNLIMITED,
        bodies: str = "",
    ) -> list[Admission]:
        """Record many jobs in one round trip, in order; returns the admission of each, as `create` does.

        `bodies` is a fingerprint of all bodies, for a batch that a client may send again.
        """
        arguments = partial(create_arguments, batch_id=batch_id, key=key, limits=limits, bodies=bodies)
        with self._redis.pipeline(transaction=False) as pipe:
            for new in jobs:
                self._create(*arguments(new), client=pipe)
            return [Accepted.from_reply(reply) for reply in pipe.execute()]

    def get(self, job_id: str) -> JobView | None:
        """The job with its result; None if it is unknown or has expired."""
        reply = self._read({"id": job_id}) if _may_exist(job_id) else None
        if reply is None:
            return None
        view = JobView.from_reply(job_id, reply)
        # No worker may be alive to end an overdue job. The local clock only decides whether Redis is asked to do so.
        if view.overdue(time.time()) and self.expire(job_id):
            return self.get(job_id)
        return view

    def claim(self, worker: str, gpu: str = "", message: Message | None = None) -> Claim | None:
        """Start the first job of the queues that this worker serves; None if they are empty.

        `gpu` is the model of the worker's device. None also if a job already runs under this message.
        """
        try:
            return self.queue.claim(worker, gpu, message, PULSE_TTL_S)
        except UnreadableRequest as error:
            self.fail(error.job_id, error.attempt, str(error))
            return None

    def enter_stage(
        self, job_id: str, attempt: int, stage: Stage, *, ago: float = 0.0, interim_correct: bool | None = None
    ) -> bool:
        """Enter a stage that began `ago` seconds before this call; `interim_correct` is the interim verdict, if any."""
        argument = {
            "id": job_id,
            "attempt": attempt,
            "state": STATE_OF_STAGE[stage],
            "stage": stage,
            "ago": ago,
            "interim_correct": interim_correct,
        }
        return bool(self._enter_stage(argument))

    def pulse(self, job_id: str, attempt: int) -> Pulse:
        """Report that this attempt is alive (at least every PULSE_TTL_S / 2); returns whether it should go on."""
        return cast(Pulse, text(self._pulse({"id": job_id, "attempt": attempt, "owner_ttl": PULSE_TTL_S})))

    def complete(
        self, job_id: str, attempt: int, body: dict[str, Any], texts: Mapping[str, bytes] | None = None
    ) -> bool:
        """End the job with its result and artifacts (`texts`, by name); ValueError for NaN or infinity, not in JSON."""
        result = json.dumps(body, allow_nan=False, separators=(",", ":"))
        argument = {
            "id": job_id,
            "attempt": attempt,
            "verdict": body["verdict"],
            "ttl": self._ttl_s,
            "counters": counters.names_to_count(body),
            "buckets": counters.BUCKETS_S,
            "reusable": reusable(body),
        }
        summary = json.dumps(asdict(Summary.from_body(body)), separators=(",", ":"))
        artifacts = (part for named in (texts or {}).items() for part in named)
        return bool(self._complete(argument, result, summary, *artifacts))

    def fail(self, job_id: str, attempt: int, error: str) -> bool:
        """End a job whose request cannot be read; no evidence against its worker."""
        return bool(self._fail({"id": job_id, "attempt": attempt, "error": _storable(error)}))

    def requeue(self, job_id: str, attempt: int, reason: str, *, proven: bool = True) -> str | None:
        """Queue the job again after a fault of the service; returns the queue, to which the caller sends a message.

        The job keeps its position. It goes to another worker's queue while one exists that has not failed it. None if
        the job ended instead: cancelled on request, or failed with all reasons after MAX_ATTEMPTS. None also if it
        pauses for LAST_PAUSE_S; a reconciler lets it enter a queue then. Only a `proven` fault counts towards the
        quarantine of its worker.
        """
        argument = {
            "id": job_id,
            "attempt": attempt,
            "reason": _storable(reason),
            "max_attempts": MAX_ATTEMPTS,
            "pause": LAST_PAUSE_S,
            "proven": proven,
        }
        queue = self._requeue(argument)
        return None if queue == 0 else text(queue)

    def cancel(self, job_id: str) -> JobView | None:
        """Cancel a queued job at once, ask the worker of a running one to stop; None for an unknown job."""
        if _may_exist(job_id):
            self._cancel({"id": job_id})
        return self.get(job_id)

    def cancel_many(self, job_ids: Sequence[str], key_id: str | None = None) -> list[tuple[JobView, bool]]:
        """`cancel` for every known job of `job_ids`, limited to those of the API key if one is named.

        Returns each job after the cancellation, and whether it was open before.
        """
        existing_ids = [view.job_id for view in self.views(job_ids) if key_id in (None, view.key_id)]
        with self._redis.pipeline(transaction=False) as pipe:
            for job_id in existing_ids:
                self._cancel({"id": job_id}, client=pipe)
            open_ = dict(zip(existing_ids, pipe.execute(), strict=True))
        return [(view, bool(open_[view.job_id])) for view in self.views(existing_ids)]

    def expire(self, job_id: str) -> bool:
        """End a queued job whose queue_timeout has passed; False for any other job."""
        return bool(self._expire({"id": job_id}))

    def expire_overdue(self) -> int:
        """End up to MAX_PER_SWEEP queued jobs whose queue_timeout has passed; returns their number."""
        overdue = self._redis.zrangebyscore("jobs:deadlines", "-inf", f"{self.now():.6f}", start=0, num=MAX_PER_SWEEP)
        return sum(self.expire(text(job_id)) for job_id in overdue)

    def stored_bytes(self) -> int:
        """Approximate bytes of all records: requests and results, plus 2 KiB each for the rest."""
        return int(self._redis.get("jobs:bytes:kept") or 0)

    def room(self, job_id: str, limits: Limits) -> int:
        """Bytes that this job's record may still grow, within the limits of all jobs and of its API key."""
        left = limits.memory - self.stored_bytes()
        key = self._redis.hget(f"job:{job_id}", "key_id")
        if key is None:
            return left
        return min(left, limits.share - int(self._redis.hget("jobs:bytes:of_key", text(key)) or 0))

    def finish_cancelled(self, job_id: str, attempt: int) -> bool:
        return bool(self._finish_cancelled({"id": job_id, "attempt": attempt}))

    def cleanup(self, finished_before: float) -> int:
        """Delete the jobs that finished before that time (epoch seconds); returns their number."""
        forgotten = 0
        argument = {"finished_before": f"{finished_before:.6f}", "limit": MAX_PER_SWEEP}
        while swept := int(self._cleanup(argument)):
            forgotten += swept
        self.queue.drop_shares()
        return forgotten

    def counters(self) -> dict[str, float]:
        """All counters under flat names, over all processes; absent until first counted unless marked *.

        Totals: submitted*, completed*, failed*, cancelled*, requeued*, reused*, by_kernel_type:<t>, by_operation:<o>,
        by_verdict:<status>, ended:<t>:<o>:<state>:<verdict or cause>. Kernels: compile_ok/_failed (also references),
        build_cache_hits/_misses, correctness_ok/_failed (of compiled kernels), profiling_ok/_failed,
        run_seconds_by_worker:<worker> (device time, without the stage that runs now).
        Now: jobs* (all stored jobs), by_state:<state>*, finished_last_300_s*, average_age_seconds*.
        For completed jobs, each with :count :sum :min :max: queue_seconds, build_seconds, device_wait_seconds,
        run_seconds, end_to_end_seconds. `counting_since` is the epoch time of the first job.
        """
        return counters.read(self._redis, self.now())

    def now(self) -> float:
        """Epoch seconds of the Redis server's clock, which all times in records use."""
        seconds, micros = self._redis.time()
        return float(seconds) + float(micros) / 1e6

    def queue_length(self) -> int:
        """The number of queued jobs, also of those that pause before their last attempt."""
        return int(self._redis.zcard(f"jobs:state:{State.QUEUED.value}"))

    def oldest_queued(self) -> float | None:
        """Submission time of the oldest queued job; None if none is queued."""
        oldest = self._redis.zrange(f"jobs:state:{State.QUEUED.value}", 0, 0, withscores=True)
        return float(oldest[0][1]) if oldest else None

    def abandoned(self) -> list[tuple[str, int]]:
        """Active jobs whose owner sent no pulse for PULSE_TTL_S, as pairs of job id and attempt.

        No pulse counts for longer than that from now: one from before Redis' clock was set back would, for hours.
        """
        with self._redis.pipeline(transaction=False) as pipe:
            for state in ACTIVE:
                pipe.zrange(f"jobs:state:{state.value}", 0, -1)
            active = [text(job_id) for ids in pipe.execute() for job_id in ids]
        with self._redis.pipeline(transaction=False) as pipe:
            for job_id in active:
                pipe.expire(f"job:{job_id}:owner", PULSE_TTL_S, lt=True)
                pipe.exists(f"job:{job_id}:owner")
                pipe.hget(f"job:{job_id}", "attempt")
            facts = pipe.execute()
        pairs = zip(active, facts[1::3], facts[2::3], strict=True)
        return [(job_id, int(attempt)) for job_id, owned, attempt in pairs if not owned and attempt is not None]

    def list(
        self,
        *,
        state: State | None = None,
        batch_id: str | None = None,
        key_id: str | None = None,
        name: str | None = None,
        limit: int = 100,
        before: float | None = None,
    ) -> list[JobView]:
        """The newest jobs first, without their results; `before` is the last `submitted_at` of the previous page.

        With a batch, a name or an API key, `state` filters the `limit` jobs that were read, so fewer may be returned. A
        batch belongs to one API key; for another key it is empty. A batch's jobs are not filtered by `name`.
        """
        if batch_id and not _may_exist(batch_id):
            return []
        index = _index(state, batch_id, key_id, name)
        newest = "+inf" if before is None else f"({before:.6f}"
        job_ids = self._redis.zrevrangebyscore(index, newest, "-inf", start=0, num=limit)
        views = self.views(text(job_id) for job_id in job_ids)
        return [view for view in views if state in (None, view.state) and key_id in (None, view.key_id)]

    def newest_named(self, prefix: str, key_id: str | None, limit: int) -> Sequence[JobView]:
        """The newest job of each of the first `limit` names that begin with `prefix`, of an API key or of all."""
        start = prefix.encode()
        names = self._redis.zrangebylex(
            f"jobs:names:{key_id or ''}", b"[" + start, b"(" + start + b"\xff", start=0, num=limit
        )
        with self._redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.zrange(_index(None, None, key_id, text(name)), 0, 0, desc=True)
            newest = pipe.execute()
        return self.views(text(job_id) for ids in newest for job_id in ids)

    def summaries(self, key_id: str | None, limit: int) -> Sequence[Leader]:
        """Ids, summaries and names of the completed jobs among the newest `limit` jobs of an API key, the newest first.

        Without a key, of the newest `limit` completed jobs.
        """
        index = _index(State.COMPLETED, None, key_id, None)
        newest = [text(job_id) for job_id in self._redis.zrevrange(index, 0, limit - 1)]
        with self._redis.pipeline(transaction=False) as pipe:
            for job_id in newest:
                pipe.hmget(f"job:{job_id}", "summary", "name")
            stored = zip(newest, pipe.execute(), strict=True)
        return [
            Leader(job_id, Summary.from_wire(json.loads(summary)), None if name is None else text(name))
            for job_id, (summary, name) in stored
            if summary is not None
        ]

    def views(self, job_ids: Iterable[str]) -> Sequence[JobView]:
        """The known jobs among these, without their results."""
        ids = [job_id for job_id in job_ids if _may_exist(job_id)]
        with self._redis.pipeline(transaction=False) as pipe:
            for job_id in ids:
                pipe.hgetall(f"job:{job_id}")
            records = zip(ids, pipe.execute(), strict=True)
            views = [JobView.from_hash(job_id, stored, None) for job_id, stored in records if stored]
        if not any(view.state is State.QUEUED for view in views):
            return views
        with self._redis.pipeline(transaction=False) as pipe:
            for view in views:
                pipe.zrank("jobs:queue", view.queue_key or "")
            ranks = pipe.execute()
        return [view.with_rank(rank) for view, rank in zip(views, ranks, strict=True)]


def _storable(reason: str) -> str:
    """Truncate to REASON_CHARS, and replace lone surrogates, which UTF-8 cannot encode."""
    return reason[:REASON_CHARS].encode(errors="replace").decode()


def _may_exist(given_id: str) -> bool:
    """Whether a job or a batch may have that id. With a colon it would name another key of a job (`shared/job.lua`)."""
    return ":" not in given_id


def _index(state: State | None, batch_id: str | None, key_id: str | None, name: str | None) -> str:
    if batch_id:
        return f"batch:{batch_id}"
    if name:
        return f"jobs:name:{key_id or ''}:{name}"
    if key_id:
        return f"jobs:key:{key_id}"
    return f"jobs:state:{state.value}" if state else "jobs:all"
