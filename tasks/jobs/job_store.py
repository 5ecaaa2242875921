"""Job records: the one truth about every job, in Redis, moved only by compare-and-set."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, cast

from redis import Redis

from domain.access import Key
from domain.job import STATE_OF_STAGE, Stage, State
from domain.request import Request
from tasks.jobs import admission, counters, job_lua
from tasks.jobs.admission import UNLIMITED, Admission, Limits, Refusal, Seen
from tasks.jobs.job_queue import Claim, Lines, Message, Unreadable
from tasks.jobs.job_view import JobView, text
from tasks.jobs.leaderboard import Summary
from tasks.jobs.result_reuse import reusable
from tasks.jobs.webhook_outbox import Webhook

__all__ = ["Claim", "JobRecords", "JobView", "Message", "Pulse"]

MAX_ATTEMPTS = 3
PULSE_TTL_S = 6
"""An owner that has not said for so long that it is at work counts as gone."""
SWEEP = 500
REASON_CHARS = 2000
ACTIVE = (State.BUILDING, State.WAITING, State.RUNNING)

Pulse = Literal["go on", "cancel", "lost"]


class JobRecords:
    """The records of all jobs. Every move is one round trip, safe from any thread and process.

    Moves return False when the caller no longer holds the attempt (given up and queued again, or terminal): he must
    stop, and nothing he did counts. A terminal state is written exactly once.
    """

    def __init__(self, redis: Redis, ttl_s: int) -> None:
        """Finished jobs are kept for `ttl_s` seconds."""
        self._redis = redis
        self._ttl_s = ttl_s
        self.lines = Lines(redis, ttl_s)
        self._create = redis.register_script(job_lua.CREATE)
        self._look = redis.register_script(job_lua.LOOK)
        self._expire = redis.register_script(job_lua.EXPIRE)
        self._advance = redis.register_script(job_lua.ADVANCE)
        self._pulse = redis.register_script(job_lua.PULSE)
        self._complete = redis.register_script(job_lua.COMPLETE)
        self._fail = redis.register_script(job_lua.FAIL)
        self._requeue = redis.register_script(job_lua.REQUEUE)
        self._cancel = redis.register_script(job_lua.CANCEL)
        self._finish_cancelled = redis.register_script(job_lua.FINISH_CANCELLED)
        self._cleanup = redis.register_script(job_lua.CLEANUP)

    def create(
        self,
        job_id: str,
        request: Request,
        *,
        batch_id: str | None = None,
        key: Key | None = None,
        limits: Limits = UNLIMITED,
        webhook: Webhook | None = None,
    ) -> Seen | Refusal:
        """Record a new job as queued, belonging to `key`, unless something is full; one that is there stays."""
        arguments = admission.arguments(job_id, request, batch_id, key, limits, self._ttl_s, webhook=webhook, read=True)
        return admission.seen(job_id, self._create(args=arguments))

    def create_many(
        self,
        jobs: Sequence[tuple[str, Request]],
        *,
        batch_id: str | None,
        key: Key | None = None,
        limits: Limits = UNLIMITED,
        indexes: Sequence[int] = (),
        webhooks: Mapping[str, Webhook] | None = None,
        bodies: str = "",
    ) -> list[Admission]:
        """Record many jobs, in their order, in one round trip; for each what `create` says.

        `indexes` are their places in the batch, where some of its bodies were refused: 0, 1, 2, … without. `bodies` is
        a fingerprint of all of them, where the batch can come again; `webhooks` are by job.
        """
        places = (indexes or range(len(jobs))) if batch_id else [None] * len(jobs)
        with self._redis.pipeline(transaction=False) as pipe:
            for (job_id, request), index in zip(jobs, places, strict=True):
                own = (job_id, request, batch_id, key, limits, self._ttl_s, index)
                hook = (webhooks or {}).get(job_id)
                self._create(args=admission.arguments(*own, webhook=hook, bodies=bodies), client=pipe)
            return [admission.answer(said) for said in pipe.execute()]

    def get(self, job_id: str) -> JobView | None:
        """The job with its result; None when it was never recorded or is no longer kept."""
        found = self._look(args=[job_id])
        if found is None:
            return None
        view = JobView.looked(job_id, found)
        # By this machine's clock, which only decides whether Redis is asked. No worker may live that ends it.
        if view.overdue(time.time()) and self.expire(job_id):
            return self.get(job_id)
        return view

    def claim(self, worker: str, gpu: str = "", message: Message | None = None) -> Claim | None:
        """Begin the first job of the lines that this worker serves; None where there is none
        (`tasks/jobs/job_queue.py`).

        `gpu` is the model of its device. None also for a message under which a job runs already.
        """
        try:
            return self.lines.claim(worker, gpu, message, PULSE_TTL_S)
        except Unreadable as error:
            self.fail(error.job_id, error.attempt, str(error))
            return None

    def advance(self, job_id: str, attempt: int, stage: Stage, *, ago: float = 0.0, right: bool | None = None) -> bool:
        """Enter a stage, which began `ago` seconds before this call; `right`: the verdict so far, if any."""
        verdict = "" if right is None else int(right)
        state = STATE_OF_STAGE[stage].value
        return bool(self._advance(args=[job_id, attempt, state, stage.value, f"{ago:.6f}", verdict]))

    def pulse(self, job_id: str, attempt: int) -> Pulse:
        """Say that this attempt is at work (at least every PULSE_TTL_S / 2) and hear whether it still should be."""
        return cast(Pulse, text(self._pulse(args=[job_id, attempt, PULSE_TTL_S])))

    def complete(
        self, job_id: str, attempt: int, body: dict[str, Any], texts: Mapping[str, bytes] | None = None
    ) -> bool:
        """Store the answer, terminal, and `texts` by name beside it; ValueError for NaN or infinity: not JSON."""
        result = json.dumps(body, allow_nan=False, separators=(",", ":"))
        names = json.dumps(counters.counted(body))
        again = "1" if reusable(body) else ""
        summary = Summary.of(body)
        told = json.dumps(asdict(summary), separators=(",", ":"))
        place = [summary.board, summary.candidate or "", repr(summary.ratio or 0.0)]
        own = [job_id, attempt, self._ttl_s, result, names, again, told, *place, body["verdict"]]
        beside = [part for named in (texts or {}).items() for part in named]
        return bool(self._complete(args=[*own, *beside]))

    def fail(self, job_id: str, attempt: int, error: str) -> bool:
        """End the job as our own fault, terminal."""
        return bool(self._fail(args=[job_id, attempt, self._ttl_s, _told(error)]))

    def requeue(self, job_id: str, attempt: int, reason: str, *, proven: bool = True) -> str | None:
        """Queue the job again after a fault of ours, at its place; the line, to whose queue the caller sends a message.

        A line of another worker's while there is one that has not failed it. None also when the job ended instead:
        cancelled where that was asked for, failed with the reasons of all its attempts after MAX_ATTEMPTS. A fault that
        is not `proven` does not count for its worker's quarantine.
        """
        line = self._requeue(args=[job_id, attempt, self._ttl_s, _told(reason), MAX_ATTEMPTS, "1" if proven else ""])
        return None if line == 0 else text(line)

    def cancel(self, job_id: str) -> JobView | None:
        """Cancel a queued job at once, ask a running one to stop, leave a terminal one; None for an unknown job."""
        self._cancel(args=[job_id, self._ttl_s])
        return self.get(job_id)

    def cancel_many(self, job_ids: Sequence[str], key_id: str | None = None) -> list[tuple[JobView, bool]]:
        """`cancel` for those of them that are known, and the key's where one is named.

        Each as it is afterwards, and whether it had not ended before.
        """
        known = [view.job_id for view in self.views(job_ids) if key_id in (None, view.key_id)]
        with self._redis.pipeline(transaction=False) as pipe:
            for job_id in known:
                self._cancel(args=[job_id, self._ttl_s], client=pipe)
            open_ = dict(zip(known, pipe.execute(), strict=True))
        return [(view, bool(open_[view.job_id])) for view in self.views(known)]

    def expire(self, job_id: str) -> bool:
        """End a queued job whose queue_timeout has passed, terminal; False for every other."""
        return bool(self._expire(args=[job_id, self._ttl_s]))

    def expire_overdue(self) -> int:
        """The same for all that there are; how many."""
        overdue = self._redis.zrangebyscore("jobs:deadlines", "-inf", f"{self.now():.6f}", start=0, num=SWEEP)
        return sum(self.expire(text(job_id)) for job_id in overdue)

    def kept_bytes(self) -> int:
        """About what the records of all jobs take: requests and results, and 2 KiB each for the rest."""
        return int(self._redis.get("jobs:bytes:kept") or 0)

    def room(self, job_id: str, limits: Limits) -> int:
        """How many bytes more the records may take for that job, by what all have and by what its key has."""
        left = limits.memory - self.kept_bytes()
        key = self._redis.hget("jobs:key_of", job_id)
        if key is None:
            return left
        return min(left, limits.share - int(self._redis.hget("jobs:bytes:of_key", text(key)) or 0))

    def cancel_requested(self, job_id: str, attempt: int) -> bool:
        """Whether this attempt should stop: its cancellation was asked for, or it no longer holds the job."""
        asked, now_held = self._redis.hmget(f"job:{job_id}", "cancel_requested", "attempt")
        return asked is not None or now_held is None or int(now_held) != attempt

    def finish_cancelled(self, job_id: str, attempt: int) -> bool:
        """End a running job as cancelled, terminal."""
        return bool(self._finish_cancelled(args=[job_id, attempt, self._ttl_s]))

    def cleanup(self, finished_before: float) -> int:
        """Forget the jobs that finished before that time (epoch seconds) and say how many."""
        forgotten = 0
        while swept := int(self._cleanup(args=["", f"{finished_before:.6f}", SWEEP])):
            forgotten += swept
        self.lines.forget_shares()
        return forgotten

    def counters(self) -> dict[str, float]:
        """All counters under flat names, true over all processes; absent until first counted unless marked *.

        Totals: submitted*, completed*, failed*, cancelled*, requeued*, reused*, by_kernel_type:<t>, by_operation:<o>,
        by_verdict:<status>, ended:<t>:<o>:<state>:<verdict or cause>, compile_ok/_failed (a reference counts too),
        build_cache_hits/_misses, correctness_ok/_failed (of what compiled), profiling_ok/_failed,
        run_seconds_by_worker:<worker> (all that it held the device, up to the stage that runs now).
        Now: jobs* (all that are kept), by_state:<state>*, finished_last_300_s*, average_age_seconds*.
        Of completed jobs, each with :count :sum :min :max: queue_seconds, build_seconds, device_wait_seconds,
        run_seconds, end_to_end_seconds. `counting_since` is the epoch time of the first job.
        """
        return counters.read(self._redis, self.now())

    def now(self) -> float:
        """The Redis server's clock, which all times in records are of."""
        seconds, micros = self._redis.time()
        return float(seconds) + float(micros) / 1e6

    def queue_length(self) -> int:
        """How many jobs are queued."""
        return int(self._redis.zcard("jobs:queue"))

    def oldest_queued(self) -> float | None:
        """When the oldest job that is queued now was submitted; None where none is."""
        oldest = self._redis.zrange(f"jobs:state:{State.QUEUED.value}", 0, 0, withscores=True)
        return float(oldest[0][1]) if oldest else None

    def abandoned(self) -> list[tuple[str, int]]:
        """Jobs under work whose owner has not been heard of for PULSE_TTL_S, with the attempt."""
        with self._redis.pipeline(transaction=False) as pipe:
            for state in ACTIVE:
                pipe.zrange(f"jobs:state:{state.value}", 0, -1)
            active = [text(job_id) for ids in pipe.execute() for job_id in ids]
        with self._redis.pipeline(transaction=False) as pipe:
            for job_id in active:
                pipe.exists(f"job:{job_id}:owner")
                pipe.hget(f"job:{job_id}", "attempt")
            facts = pipe.execute()
        pairs = zip(active, facts[::2], facts[1::2], strict=True)
        return [(job_id, int(attempt)) for job_id, owned, attempt in pairs if not owned and attempt is not None]

    def list(
        self,
        *,
        state: State | None = None,
        batch_id: str | None = None,
        key_id: str | None = None,
        limit: int = 100,
        before: float | None = None,
    ) -> list[JobView]:
        """The newest jobs first, without their results; `before` is the `submitted_at` to continue below.

        With a batch or a key and a state, up to `limit` jobs of those are looked at and those in that state returned. A
        batch belongs to one key; another's is empty.
        """
        index = _index(state, batch_id, key_id)
        newest = "+inf" if before is None else f"({before:.6f}"
        found = self._redis.zrevrangebyscore(index, newest, "-inf", start=0, num=limit)
        views = self.views(text(job_id) for job_id in found)
        return [view for view in views if state in (None, view.state) and key_id in (None, view.key_id)]

    def views(self, job_ids: Iterable[str]) -> Sequence[JobView]:
        """Those of them that are known, without their results."""
        ids = list(job_ids)
        with self._redis.pipeline(transaction=False) as pipe:
            for job_id in ids:
                pipe.hgetall(f"job:{job_id}")
            records = zip(ids, pipe.execute(), strict=True)
            views = [JobView.read(job_id, stored, None) for job_id, stored in records if stored]
        if not any(view.state is State.QUEUED for view in views):
            return views
        with self._redis.pipeline(transaction=False) as pipe:
            for view in views:
                pipe.zrank("jobs:queue", view.place or "")
            ranks = pipe.execute()
        return [view.placed(rank) for view, rank in zip(views, ranks, strict=True)]


def _told(reason: str) -> str:
    """Bounded, and without the half characters that UTF-8 does not have."""
    return reason[:REASON_CHARS].encode(errors="replace").decode()


def _index(state: State | None, batch_id: str | None, key_id: str | None) -> str:
    if batch_id:
        return f"batch:{batch_id}"
    if key_id:
        return f"jobs:key:{key_id}"
    return f"jobs:state:{state.value}" if state else "jobs:all"
