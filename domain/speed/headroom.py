"""How far a kernel's time is from the least time of its work: a signal for when to stop optimising."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from domain.flags.codes import FlagCode
from domain.result import Timing


class Basis(StrEnum):
    """The work that the least time counts. Work that is not counted makes it too short, and the ratio too large."""

    BYTES = "bytes"
    """The call's tensors, each once. A kernel that computes much may be near its limit at a large ratio."""
    BYTES_AND_OPERATIONS = "bytes_and_operations"
    """Those, and the operations of the reference that torch's counter covers."""


class NoHeadroom(StrEnum):
    """Why the ratio is unknown."""

    NOT_TIMED = "not_timed"
    TIME_IS_A_BOUND = "time_is_a_bound"
    RATES_UNKNOWN = "rates_unknown"
    """On a CPU, and on a card whose rates could not be measured."""
    NO_WORK = "no_work"
    """The call moves no bytes, and no operations were counted."""


def headroom(timing: Timing | None, position: Mapping[str, Any] | None) -> dict[str, Any]:
    """The ratio of a call's time to its least time at the measured rates, its bound and basis; JSON-ready.

    `position` is the kernel's place under the roofline (`profiling.roofline.intensity`), None if the rates are unknown.
    """
    reason = _why_unknown(timing, position)
    if reason is not None or position is None:
        return {"ratio": None, "bound": None, "basis": None, "unavailable": reason}
    memory, arithmetic = position["memory_share"], position["arithmetic_share"] or 0.0
    return {
        "ratio": 1 / max(memory, arithmetic),
        "bound": "memory" if memory >= arithmetic else "arithmetic",
        "basis": Basis.BYTES_AND_OPERATIONS.value if arithmetic else Basis.BYTES.value,
        "unavailable": None,
    }


def _why_unknown(timing: Timing | None, position: Mapping[str, Any] | None) -> str | None:
    if timing is None:
        return NoHeadroom.NOT_TIMED.value
    if position is None:
        return NoHeadroom.RATES_UNKNOWN.value
    if any(flag.code is FlagCode.UPPER_BOUND for flag in timing.flags):
        return NoHeadroom.TIME_IS_A_BOUND.value
    has_work = max(position["memory_share"], position["arithmetic_share"] or 0.0) > 0
    return None if has_work else NoHeadroom.NO_WORK.value
