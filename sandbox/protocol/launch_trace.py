"""What a runner says that its calls launched: the shape of its answer, and the strict reading of it by the referee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sandbox.protocol.channel import MAX_NUMBER, Message, ProtocolError

CUPTI = "cupti"
"""Kernels, copies and fills as the GPU ran them."""
CPU_OPERATORS = "cpu_operators"
"""On a machine without a GPU: torch's operators by their own time on the host."""

MAX_KERNELS = 64
MAX_NAME = 256
MAX_COUNT = 10**9


@dataclass(frozen=True)
class Launched:
    """One kernel by its name: how often it was launched in the traced calls, and its device time in µs altogether."""

    name: str
    launches: int
    time_us: float


@dataclass(frozen=True)
class LaunchTrace:
    """What the traced calls launched. The kernels' own word, so that nothing but information follows from it.

    `kernels` are the longest ones; `launches` and `time_us` are of all `distinct` ones, in `calls` calls together.
    `streams` were used; `elsewhere_us` is the time on other streams than the calls', and `stray_us` the part of it
    that kept no order with them: begun before what the calls queued, or over after it. None where that is not known.
    """

    source: str
    calls: int
    kernels: tuple[Launched, ...]
    launches: int
    time_us: float
    distinct: int
    streams: int | None = None
    elsewhere_us: float | None = None
    stray_us: float | None = None


def read_trace(answer: Message, *, is_cuda: bool) -> LaunchTrace:
    """The trace in a runner's answer; raises ProtocolError for what is not one."""
    source = CUPTI if is_cuda else CPU_OPERATORS
    kernels = answer.get("kernels")
    if answer.get("source") != source:
        raise ProtocolError(f"the source of a trace on this device is {source}")
    if not isinstance(kernels, list) or len(kernels) > MAX_KERNELS:
        raise ProtocolError(f"a trace has a list of at most {MAX_KERNELS} kernels")
    read = tuple(_launched(one) for one in kernels)
    known = is_cuda
    trace = LaunchTrace(
        source=source,
        calls=_count(answer, "calls"),
        kernels=tuple(sorted(read, key=lambda one: -one.time_us)),
        launches=_count(answer, "launches"),
        time_us=_time(answer, "time_us"),
        distinct=_count(answer, "distinct"),
        streams=_count(answer, "streams") if known else None,
        elsewhere_us=_time(answer, "elsewhere_us") if known else None,
        stray_us=_time(answer, "stray_us") if known else None,
    )
    if not trace.calls or trace.distinct < len(read):
        raise ProtocolError("a trace is of one call or more, and counts every kernel that it lists")
    return trace


def _launched(wire: Any) -> Launched:
    if not isinstance(wire, dict) or not isinstance(wire.get("name"), str):
        raise ProtocolError("a kernel in a trace has a name")
    return Launched(wire["name"][:MAX_NAME], _count(wire, "launches"), _time(wire, "time_us"))


def _count(wire: dict[str, Any], key: str) -> int:
    value = wire.get(key)
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        raise ProtocolError(f"{key} is a count of at most {MAX_COUNT}")
    return value


def _time(wire: dict[str, Any], key: str) -> float:
    value: Any = wire.get(key)
    if type(value) not in (int, float) or not 0 <= value < MAX_NUMBER:  # false for a NaN too
        raise ProtocolError(f"{key} is a finite time in µs that is not negative")
    return float(value)
