"""The runner's report of what its calls launched, and the referee's strict parser for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sandbox.protocol.channel import MAX_NUMBER, Message, ProtocolError

CUPTI = "cupti"
"""Source of a trace: kernels, copies and fills as the GPU ran them."""
CPU_OPERATORS = "cpu_operators"
"""Source of a trace on a machine without a GPU: torch's operators by their own time on the host."""

MAX_KERNELS = 64
MAX_NAME = 256
MAX_COUNT = 10**9


@dataclass(frozen=True)
class LaunchedKernel:
    """One kernel: its name, its launches in the traced calls, and its total device time in µs."""

    name: str
    launches: int
    time_us: float


@dataclass(frozen=True)
class LaunchTrace:
    """The runner's report of what the traced calls launched: information only, never evidence.

    `kernels` are the longest ones. `launches` and `time_us` are totals over all `distinct` kernels and all `calls`.
    `streams` is the number of streams. `stray_us` is the time on streams other than the calls', before their first
    operation or after their last. Both are None if unknown.
    """

    source: str
    calls: int
    kernels: tuple[LaunchedKernel, ...]
    launches: int
    time_us: float
    distinct: int
    streams: int | None = None
    stray_us: float | None = None


def parse_trace(reply: Message, *, is_cuda: bool) -> LaunchTrace:
    """Parses the trace in a runner's reply; raises ProtocolError if it is malformed."""
    source = CUPTI if is_cuda else CPU_OPERATORS
    kernels = reply.get("kernels")
    if reply.get("source") != source:
        raise ProtocolError(f"the source of a trace on this device is {source}")
    if not isinstance(kernels, list) or len(kernels) > MAX_KERNELS:
        raise ProtocolError(f"a trace has a list of at most {MAX_KERNELS} kernels")
    read = tuple(_launched(one) for one in kernels)
    has_streams = is_cuda
    trace = LaunchTrace(
        source=source,
        calls=_count(reply, "calls"),
        kernels=tuple(sorted(read, key=lambda one: -one.time_us)),
        launches=_count(reply, "launches"),
        time_us=_time(reply, "time_us"),
        distinct=_count(reply, "distinct"),
        streams=_count(reply, "streams") if has_streams else None,
        stray_us=_time(reply, "stray_us") if has_streams else None,
    )
    if not trace.calls or trace.distinct < len(read):
        raise ProtocolError("a trace is of one call or more, and counts every kernel that it lists")
    return trace


def _launched(wire: Any) -> LaunchedKernel:
    if not isinstance(wire, dict) or not isinstance(wire.get("name"), str):
        raise ProtocolError("a kernel in a trace has a name")
    return LaunchedKernel(wire["name"][:MAX_NAME], _count(wire, "launches"), _time(wire, "time_us"))


def _count(wire: dict[str, Any], key: str) -> int:
    value = wire.get(key)
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        raise ProtocolError(f"{key} is a count of at most {MAX_COUNT}")
    return value


def _time(wire: dict[str, Any], key: str) -> float:
    value: Any = wire.get(key)
    if type(value) not in (int, float) or not 0 <= value < MAX_NUMBER:  # False for a NaN too.
        raise ProtocolError(f"{key} is a finite time in µs that is not negative")
    return float(value)
