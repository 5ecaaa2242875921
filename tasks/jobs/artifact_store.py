"""Artifacts of a job: the texts that the request's `artifacts` asked for, and the profiler's reports.

The job's record does not contain them, because every status request reads the record. The move that completes a job
writes them. They expire and are cleaned up with the job, and they count against the bytes that records may take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from redis import Redis

from domain.listing import PROFILE, unpack
from domain.result import CANDIDATE, REFERENCE, Report

NO_ROOM = (
    "the service had no room left for it, or for this key (RECORDS_MEMORY_MIB); ask again later, or have finished jobs "
    "forgotten with POST /admin/cleanup-jobs"
)


def fitting(report: Report, room: Callable[[], int]) -> Report:
    """The report; without its artifacts and the most of long logs where these take more than `room()` bytes."""
    size = sum(map(len, (*report.texts.values(), *report.long_logs)))
    return report.without_texts(NO_ROOM) if size and size > room() else report


@dataclass(frozen=True)
class Entry:
    """One artifact in a job's result: a stored text or report, or `unavailable` and the reason."""

    side: str
    data: dict[str, Any]

    @property
    def name(self) -> str | None:
        name: str | None = self.data.get("name")
        return name

    @property
    def is_text(self) -> bool:
        return self.data.get("format") != PROFILE


def entries(result: dict[str, Any] | None) -> list[Entry]:
    """All artifacts that a job's result lists, the candidate's first; empty where there are none."""
    sides = {CANDIDATE: "kernel_exec_result", REFERENCE: "ref_result"}
    return [
        Entry(side, data)
        for side, key in sides.items()
        for data in (((result or {}).get(key) or {}).get("artifacts") or ())
    ]


def content(redis: Redis, job_id: str, side: str, name: str) -> bytes | None:
    """The stored artifact: a text as UTF-8, a report as its profiler wrote it; None if there is none of that name."""
    packed: Any = redis.hget(f"job:{job_id}:artifacts", f"{side}/{name}")
    return unpack(packed) if packed is not None else None
