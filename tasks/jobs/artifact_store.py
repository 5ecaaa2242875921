"""What is kept beside a job's result: the texts that its request's `artifacts` asked for, and the profiler's reports.

They are no part of the record that every look at a job reads, but go with it: written by the move that completes the
job, expired and cleaned up with it, and counted in the bytes that records may take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redis import Redis

from domain.listing import PROFILE, unpack
from domain.result import CANDIDATE, REFERENCE, Report

NO_ROOM = (
    "the service had no room left for it, or for this key (RECORDS_MEMORY_MIB); ask again later, or have finished jobs "
    "forgotten with POST /admin/cleanup-jobs"
)


def fitting(report: Report, room: int) -> Report:
    """The report, without what is kept beside it where that has more bytes than there is `room` for in the records."""
    size = sum(map(len, report.texts.values()))
    return report.without_texts(NO_ROOM) if size and size > room else report


@dataclass(frozen=True)
class Entry:
    """One line of a job's artifacts: a text or a report that is there, or `unavailable` and why."""

    side: str
    told: dict[str, Any]

    @property
    def name(self) -> str | None:
        name: str | None = self.told.get("name")
        return name

    @property
    def is_text(self) -> bool:
        return self.told.get("format") != PROFILE


def entries(result: dict[str, Any] | None) -> list[Entry]:
    """All that a job's result says of what is kept beside it, the candidate's first; empty where nothing is."""
    sides = {CANDIDATE: "kernel_exec_result", REFERENCE: "ref_result"}
    return [
        Entry(side, told)
        for side, key in sides.items()
        for told in (((result or {}).get(key) or {}).get("artifacts") or ())
    ]


def content(redis: Redis, job_id: str, side: str, name: str) -> bytes | None:
    """A text in UTF-8, a report as its profiler wrote it; None where none of that name is kept."""
    packed: Any = redis.hget(f"job:{job_id}:artifacts", f"{side}/{name}")
    return unpack(packed) if packed is not None else None
