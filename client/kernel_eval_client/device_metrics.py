"""The hardware counters of each kernel; docs/DEVICE_METRICS_GUIDE.md explains each figure.

The submission's own processes report them, names included: they are information and no evidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_eval_client.typed_members import member, number, objects_in_list, text, whole

MEASURED = "measured"
FULL = 99.5
"""Occupancy in per cent from which on nothing limits it."""


@dataclass(frozen=True)
class Stall:
    """One reason why warps wait, with its share of the time between two instructions of a warp, in per cent."""

    reason: str
    percent: float


@dataclass(frozen=True)
class RequestedMetric:
    """A metric that the request names; `value` is None where the profiler gave none."""

    name: str
    value: float | None
    unit: str


@dataclass(frozen=True)
class Advice:
    """The advice of one of ncu's rules about a kernel, with the figures behind it."""

    kernel: str
    rule: str
    message: str
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelMetrics:
    """One kernel over all its launches in a call. Per cent from 0 to 100, `share` of the device time from 0 to 1.

    A figure is None where the profiler gave none. `stalls` are largest first; `raw` has the rest.
    """

    name: str
    launches: int | None = None
    time_us: float | None = None
    share: float | None = None
    sm_percent: float | None = None
    memory_percent: float | None = None
    dram_percent: float | None = None
    dram_bytes_per_s: float | None = None
    l1_hit_percent: float | None = None
    l2_hit_percent: float | None = None
    achieved_occupancy: float | None = None
    theoretical_occupancy: float | None = None
    limited_by: str | None = None
    tensor_percent: float | None = None
    registers: int | None = None
    bound: str | None = None
    stalls: Sequence[Stall] = ()
    requested_metrics: Sequence[RequestedMetric] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> KernelMetrics:
        """Reads one entry of `kernels`; missing or malformed members become None."""
        stalls = [
            (text(each.get("reason")), number(each.get("percent"))) for each in objects_in_list(wire.get("stalls"))
        ]
        requested, registers = wire.get("requested_metrics"), number(wire.get("registers"))
        return cls(
            name=text(wire.get("name")) or "?",
            launches=whole(wire.get("launches")),
            time_us=number(wire.get("time_us")),
            share=number(wire.get("share")),
            sm_percent=number(member(wire, "speed_of_light", "sm_percent")),
            memory_percent=number(member(wire, "speed_of_light", "memory_percent")),
            dram_percent=number(member(wire, "memory", "dram_percent")),
            dram_bytes_per_s=number(member(wire, "memory", "dram_bytes_per_s")),
            l1_hit_percent=number(member(wire, "memory", "l1_hit_percent")),
            l2_hit_percent=number(member(wire, "memory", "l2_hit_percent")),
            achieved_occupancy=number(member(wire, "occupancy", "achieved_percent")),
            theoretical_occupancy=number(member(wire, "occupancy", "theoretical_percent")),
            limited_by=text(member(wire, "occupancy", "limited_by")),
            tensor_percent=number(wire.get("tensor_percent")),
            registers=None if registers is None else int(registers),
            bound=text(member(wire, "roofline", "bound")),
            stalls=tuple(Stall(reason, percent) for reason, percent in stalls if reason and percent is not None),
            requested_metrics=tuple(
                RequestedMetric(str(name), number(member(one, "value")), text(member(one, "unit")) or "")
                for name, one in (requested.items() if isinstance(requested, Mapping) else ())
            ),
            raw=wire,
        )


@dataclass(frozen=True)
class SideMetrics:
    """The metrics of the candidate or of the reference; `seconds` is the time that it took to read them."""

    status: str
    reason: str | None = None
    kernels: Sequence[KernelMetrics] = ()
    kernels_omitted: int = 0
    advice: Sequence[Advice] = ()
    seconds: float | None = None

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> SideMetrics:
        """Reads `candidate` or `reference`; missing or malformed members become None."""
        advice = [
            Advice(
                text(each.get("kernel")) or "?",
                text(each.get("rule")) or "?",
                text(each.get("message")) or "",
                figures if isinstance(figures := each.get("figures"), Mapping) else {},
            )
            for each in objects_in_list(wire.get("advice"))
        ]
        return cls(
            status=text(wire.get("status")) or "unavailable",
            reason=text(wire.get("reason")),
            kernels=tuple(KernelMetrics.from_wire(each) for each in objects_in_list(wire.get("kernels"))),
            kernels_omitted=whole(wire.get("kernels_omitted")) or 0,
            advice=tuple(advice),
            seconds=number(wire.get("seconds")),
        )


@dataclass(frozen=True)
class DeviceMetrics:
    """The metrics of a job. `status` is `measured`, or `unavailable` with the reason and the remedy.

    `metrics` are the names in the request; only comparisons have `reference`. `raw` is the JSON as the service sent it,
    with the original service's names in `original_device_metrics` and `custom_device_metrics`.
    """

    status: str
    reason: str | None = None
    level: str | None = None
    metrics: Sequence[str] = ()
    profiler: str | None = None
    candidate: SideMetrics | None = None
    reference: SideMetrics | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def measured(self) -> bool:
        """Whether there are any figures."""
        return self.status == MEASURED

    @property
    def sides(self) -> Sequence[tuple[str, SideMetrics]]:
        """The available sides with their names, the candidate first."""
        named = (("candidate", self.candidate), ("reference", self.reference))
        return [(name, side) for name, side in named if side is not None]

    @classmethod
    def from_wire(cls, wire: Any) -> DeviceMetrics | None:
        """Reads `kernel_exec_result.metadata.device_metrics`; None if the request asked for no metrics."""
        if not isinstance(wire, Mapping):
            return None
        candidate, reference, metrics = (wire.get(name) for name in ("candidate", "reference", "metrics"))
        return cls(
            status=text(wire.get("status")) or "unavailable",
            reason=text(wire.get("reason")),
            level=text(wire.get("level")),
            metrics=tuple(each for each in metrics if isinstance(each, str)) if isinstance(metrics, list) else (),
            profiler=text(wire.get("profiler")),
            candidate=SideMetrics.from_wire(candidate) if isinstance(candidate, Mapping) else None,
            reference=SideMetrics.from_wire(reference) if isinstance(reference, Mapping) else None,
            raw=wire,
        )


def in_words(kernel: KernelMetrics) -> list[str]:
    """The available figures, each in a few words, the most useful first."""
    figures = []
    for name, percent in (("SM", kernel.sm_percent), ("memory", kernel.memory_percent), ("DRAM", kernel.dram_percent)):
        if percent is not None:
            figures.append(f"{name} {percent:.0f}% of peak")
    if kernel.achieved_occupancy is not None:
        ceiling = "" if kernel.theoretical_occupancy is None else f" of {kernel.theoretical_occupancy:.0f}%"
        limited = kernel.limited_by and (kernel.theoretical_occupancy or 0.0) < FULL
        limit = f", limited by {(kernel.limited_by or '').replace('_', ' ')}" if limited else ""
        figures.append(f"occupancy {kernel.achieved_occupancy:.0f}%{ceiling}{limit}")
    if kernel.l2_hit_percent is not None:
        figures.append(f"L2 hits {kernel.l2_hit_percent:.0f}%")
    if kernel.tensor_percent:
        figures.append(f"tensor cores {kernel.tensor_percent:.0f}%")
    if kernel.stalls:
        first = kernel.stalls[0]
        figures.append(f"waits for {first.reason.replace('_', ' ')} {first.percent:.0f}%")
    return figures
