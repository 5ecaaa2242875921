"""Example responses in the OpenAPI document: one job from acceptance to its end, a batch, and every kind of problem.

The code that makes real responses makes them, from a comparison that passed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from api.http.problems import MAYBE_RECORDED, FieldError, Kind, Problem, invalid
from api.observability.stats import job_stats, stats_body
from api.pages import next_step
from api.schemas.batch import line, progress
from api.schemas.job import body, location, result, summary
from api.webhook_dispatcher import message
from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.job import Stage, State
from domain.kernel import KernelType
from domain.result import Comparison, Outcome, Report, RuntimeStats, Speedup, Status, Timing
from tasks.jobs.job_summary import Summary
from tasks.jobs.job_view import JobView, TimelineEntry

JOB, BATCH = "863ae72d-f647-41c3-a368-eb8d349a24ea", "63b35658-379f-430a-a557-b8dbf3581521"
WORKER = "worker-0@node7"
_BEGAN = 1795188204.18
_ENVIRONMENT = {
    **{"host": "node7", "address": "10.0.0.7", "device": "cuda:0", "gpu_name": "NVIDIA H200", "gpu_type": "h200"},
    **{"python": "3.11.7", "torch": "2.13.0"},
}


_EXCLUDED = Flag(
    FlagCode.WINDOWS_EXCLUDED,
    "1 of 13 windows was disturbed by other load and dropped",
    {"excluded_windows": 1, "windows": 13},
)


def _timing(ms: float, *flags: Flag) -> Timing:
    stats = RuntimeStats(ms, ms / 50, ms * 0.97, ms * 1.06, ms, ms * 1.03, ms * 1.05)
    return Timing(
        "gated_window", stats, ms, 240, 12, 2880, 0.02, "events", "cold", [*flags], relative_ci=0.004, launches=1
    )


def _result() -> dict[str, Any]:
    compared = Comparison(True, 208, 208, 1e-6, 2e-7, 2e-8, 0, 27_262_976, 0.01, 0.01)
    kernel = Outcome(
        Status.PASSED, "triton", True, entry="kernel vector_add", timing=_timing(0.0124, _EXCLUDED), comparison=compared
    )
    reference = Outcome(Status.PASSED, "torch", True, entry="class Model", timing=_timing(0.0248))
    return Report(kernel, _ENVIRONMENT, reference, Speedup(2.0, 1.96, 2.04, "faster")).body(JOB)


def _timeline(*stages: Stage) -> list[TimelineEntry]:
    return [TimelineEntry(stage, _BEGAN + number * 0.5, 1) for number, stage in enumerate(stages)]


_QUEUED = JobView(
    job_id=JOB,
    operation="compare",
    kernel_type="triton",
    state=State.QUEUED,
    stage=Stage.QUEUED,
    attempt=0,
    submitted_at=_BEGAN,
    queue_position=3,
    timeline=_timeline(Stage.QUEUED),
    result=None,
    error=None,
    worker=None,
    batch_id=None,
    timeout=120,
    name="vector add, blocks of 1024",
)
_ENDED = replace(
    _QUEUED,
    state=State.COMPLETED,
    stage=Stage.DONE,
    attempt=1,
    queue_position=None,
    timeline=_timeline(*Stage),
    result=_result(),
    worker=WORKER,
    summary=Summary.from_body(_result()),
)
_RUNNING = replace(_ENDED, state=State.RUNNING, stage=Stage.TIME, result=None, summary=None, cancel_requested=True)
_OF_A_BATCH = replace(_ENDED, batch_id=BATCH, batch_index=0)
_WRONG_TYPE = f"must be one of: {', '.join(KernelType)}"


def _problems() -> dict[str, Problem]:
    fields = [FieldError(("kernel", "kernel_type"), _WRONG_TYPE)]
    details = {
        Kind.KEY_REQUIRED: "send `Authorization: Bearer <key>`",
        Kind.SCOPE_MISSING: "this key has not the scope `submit`",
        Kind.UNKNOWN_JOB: f"no job {JOB!r} is known",
        Kind.BODY_LATE: "of 4096 bytes 1024 came in time, which is 10 s and one more for every 32 KiB; send the rest",
        Kind.JOB_CANCELLED: "the job was cancelled on request",
        Kind.REQUEST_GONE: "the service did not keep this request; submit it again with budget `precise`",
        Kind.UNSUPPORTED_MEDIA_TYPE: "send JSON, as application/json",
        Kind.IDEMPOTENCY_KEY_REUSED: "this key was used for another request; choose a new one",
        Kind.TOO_MANY_REQUESTS: "more requests than this key may send; try again after Retry-After",
        Kind.JOB_FAILED: "the job failed after 3 attempts; submit it again",
        Kind.BROKER_UNREACHABLE: f"the broker does not answer. {MAYBE_RECORDED}",
    }
    problems = [invalid(fields, {"kernel": {"kernel_type": "cudnn"}}), *(Problem(*item) for item in details.items())]
    return {str(problem.status_code): problem for problem in problems}


_PROBLEMS = _problems()
_COUNTERS: dict[str, float] = {
    **{f"by_state:{state.value}": 0 for state in State},
    **{"jobs": 1, "submitted": 1, "completed": 1, "failed": 0, "cancelled": 0, "by_state:completed": 1},
    **{"average_age_seconds": 3.5, "finished_last_300_s": 1, "by_verdict:passed": 1, "counting_since": _BEGAN},
}
_BY_SCHEMA: dict[str, Any] = {
    "Job": body(_ENDED),
    "Result": result(_ENDED),
    "JobList": {"jobs": [summary(_ENDED)], "next_cursor": None},
    "BatchView": {"batch_id": BATCH, **progress([_OF_A_BATCH]), "jobs": [line(_OF_A_BATCH)]},
    "BatchResponse": {
        **{"batch_id": BATCH, "accepted": 1, "refused": 0},
        **progress([_OF_A_BATCH]),
        "jobs": [line(_OF_A_BATCH)],
    },
    "CancelResponse": {
        **{"cancelled": 0, "already_finished": 0, "cancelling": 1},
        "jobs": [{"job_id": JOB, "state": State.RUNNING.value, "cancel_requested": True}],
        "not_found": [],
    },
    "ArtifactList": {
        "job_id": JOB,
        "artifacts": [
            {"side": "candidate", "name": "vector_add.ptx", "format": "ptx", "kernel": "vector_add", "bytes": 4096}
            | {"truncated": False, "path": f"{location(JOB)}/artifacts/candidate/vector_add.ptx"}
        ],
    },
    "Source": {
        **{"job_id": JOB, "name": "vector add, blocks of 1024"},
        "kernel": {"kernel_type": "triton", "source_code": "import triton\n…"},
        "reference": {"kernel_type": "torch", "source_code": "import torch\n…"},
    },
    "Cleanup": {"status": "cleanup_completed", "removed": 12},
    "Stats": {**stats_body(_COUNTERS, _BEGAN + 60), "workers_quarantined": 0},
    "Health": {
        **{"status": "healthy", "reasons": [], "gpu_available": True, "gpu_count": 1, "broker": "ready"},
        **{"compilation_service": "ready", "profiling_service": "ready", "quarantined": []},
        **{"workers": [{"name": WORKER, "host": "node7", "gpu_name": "NVIDIA H200", "quarantined": None}]},
        **{"job_stats": job_stats(_COUNTERS), "gpu_manager": {"available_gpus": 1}},
        "broker_warnings": [],
    },
    "Dashboard": {
        **{"name": "Kernel evaluation", "version": "0.1.0", "jobs_by_state": {"completed": 1}},
        **{"finished_last_5_minutes": 1, "recent_jobs": [], "leaderboards": []},
        "workers": [{"name": WORKER, "host": "node7", "gpu_name": "NVIDIA H200", "quarantined": None}],
        "links": {"documentation": "/docs", "openapi": "/openapi.json", "health": "/health", "jobs": "/jobs"},
    },
}
_BY_STATUS: dict[tuple[str, str], Any] = {
    ("Job", "202"): body(_QUEUED),
    ("BatchResponse", "202"): {
        **{"batch_id": BATCH, "accepted": 1, "refused": 0},
        "jobs": [{"index": 0, "job_id": JOB, "location": location(JOB), "state": State.QUEUED.value}],
    },
    ("Health", "503"): {
        "status": "unhealthy",
        "reasons": (_NONE := ["no worker has been heard of"]),
        "error": _NONE[0],
    },
}
_STOPPING = body(_RUNNING)

WEBHOOK = message(_ENDED)
"""An example of a webhook's body."""


def of(schema: str, method: str, path: str, status: str) -> dict[str, Any] | None:
    """The example of an operation's response with that schema; None without one."""
    if schema == "Problem":
        return _problem(path, status)
    if (method, status) == ("delete", "202"):
        return _STOPPING
    example: dict[str, Any] | None = _BY_STATUS.get((schema, status), _BY_SCHEMA.get(schema))
    return example


def _problem(path: str, status: str) -> dict[str, Any] | None:
    instance = path.format(job_id=JOB, batch_id=BATCH, side="candidate", name="vector_add.ptx")
    if status == "413":
        detail = "the body is larger than 64 MiB; split it, or send tensors compressed"
        plain = {"type": "about:blank", "title": "Request Entity Too Large", "status": 413}
        return {**plain, "detail": detail, "instance": instance, "error": detail, "next": next_step.OF_STATUS[413]}
    if status == "404" and "{job_id}" not in path:
        return Problem(Kind.UNKNOWN_BATCH, f"no batch {BATCH!r} is known").body(instance)
    problem = _PROBLEMS.get(status)
    return None if problem is None else problem.body(instance)
