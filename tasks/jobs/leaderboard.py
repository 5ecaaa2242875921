"""The fastest candidates of each reference, among the newest jobs; nothing is stored for it.

Only jobs that passed with a speed-up count, and only if nobody knew their inputs beforehand. A board belongs to one
reference and one device model. It holds each candidate once, by its newest measurement: the best of many measurements
would be the luckiest one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from domain.result import Status
from tasks.jobs.job_summary import Summary

LENGTH = 10


@dataclass(frozen=True)
class Leader:
    """A candidate on a board: a completed job, its summary and its name."""

    job_id: str
    summary: Summary
    name: str | None = None


@dataclass(frozen=True)
class Board:
    """At most LENGTH candidates of a reference (its digest) on a device model, by the lower end of the speed-up."""

    reference: str
    device: str
    leaders: list[Leader]


def boards(newest: Iterable[Leader]) -> list[Board]:
    """The boards of these jobs, the newest first, that of the newest job first."""
    leaders_of: dict[tuple[str, str], dict[str, Leader]] = {}
    for leader in newest:
        one = leader.summary
        if _counts(one) and one.reference and one.device and one.candidate:
            leaders_of.setdefault((one.reference, one.device), {}).setdefault(one.candidate, leader)
    return [
        Board(reference, device, sorted(leaders.values(), key=_lower_end, reverse=True)[:LENGTH])
        for (reference, device), leaders in leaders_of.items()
    ]


def _counts(one: Summary) -> bool:
    """Whether the job passed, has a speed-up that is no mere bound, and drew inputs that nobody knew beforehand."""
    return (one.verdict, one.inputs_replayed) == (Status.PASSED, False) and None not in (one.ratio, one.ci_high)


def _lower_end(leader: Leader) -> float:
    return leader.summary.ci_low or 0.0
