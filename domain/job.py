"""The states and stages of a job."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a job is. COMPLETED covers every verdict about a kernel; FAILED is the service's own fault."""

    QUEUED = "queued"
    BUILDING = "building"
    WAITING = "waiting"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL


TERMINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})
"""A job reaches exactly one of these states, once."""


class Stage(StrEnum):
    """Progress inside a state; a hint for people, without guarantees."""

    QUEUED = "queued"
    BUILD = "build"
    WAIT_FOR_DEVICE = "wait_for_device"
    LOAD = "load"
    VALIDATE = "validate"
    TIME = "time"
    INSPECT = "inspect"
    DONE = "done"


STATE_OF_STAGE: dict[Stage, State] = {
    Stage.BUILD: State.BUILDING,
    Stage.WAIT_FOR_DEVICE: State.WAITING,
    Stage.LOAD: State.RUNNING,
    Stage.VALIDATE: State.RUNNING,
    Stage.TIME: State.RUNNING,
    Stage.INSPECT: State.RUNNING,
}
