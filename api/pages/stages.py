"""A job's timeline: its stages, the duration of each, and a bar of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tasks.jobs.job_view import TimelineEntry

WIDTH = 880.0
LEAST = 2.0
"""Minimum width of a stage, so that one without duration is visible."""

MEANS = {
    "queued": "waited for a worker",
    "build": "started a process and compiled, without the device",
    "wait_for_device": "waited for the device",
    "load": "loaded on the device",
    "validate": "first calls, compared",
    "time": "timed, every call compared",
    "inspect": "inspected: counters, sanitizer",
    "done": "done",
}


@dataclass(frozen=True)
class Step:
    """One stage of one attempt. `began_s` counts from the submission; `lasted_s` is None for the last one."""

    stage: str
    means: str
    attempt: int
    began_s: float
    lasted_s: float | None
    reason: str | None
    x: float
    width: float


def steps(timeline: Sequence[TimelineEntry]) -> list[Step]:
    """The stages in their order, with the part of the bar that each takes."""
    if not timeline:
        return []
    begun = timeline[0].at
    lasted = [max(0.0, after.at - step.at) for step, after in pairwise(timeline)]
    whole = sum(lasted) or 1.0
    room = WIDTH - LEAST * len(lasted)
    timeline_steps, x = [], 0.0
    for step, seconds in zip(timeline, [*lasted, None], strict=True):
        width = 0.0 if seconds is None else LEAST + room * seconds / whole
        timeline_steps.append(
            Step(
                step.stage,
                MEANS.get(step.stage, step.stage.replace("_", " ")),
                step.attempt,
                step.at - begun,
                seconds,
                step.reason,
                round(x, 2),
                round(width, 2),
            )
        )
        x += width
    return timeline_steps
