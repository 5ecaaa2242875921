"""Places a call in the roofline model of Williams, Waterman and Patterson (2009), with rates measured on this card.

It is information and no evidence: a kernel may read an argument in part, or compute its output with fewer operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from profiling.gpu.measured_peaks import Ceilings
from profiling.roofline.limits import arithmetic_floor_ms, memory_floor_ms

BY_TIME = ("bytes_per_s", "memory_share", "flops_per_s", "arithmetic_share")
"""Fields of a position that are inversely proportional to a call's time."""
BUSY_SHARE = 0.6
"""Minimum share of a roof from which it bounds a call (the threshold of Nsight Compute's speed of light)."""


@dataclass(frozen=True)
class Work:
    """The work of one call: bytes of its tensors, each counted once, and operations by dtype (None if not counted)."""

    tensor_bytes: int
    flops: Mapping[str, float] | None
    ceilings: Ceilings

    def position(self, time_ms: float, calls: int) -> dict[str, Any] | None:
        """The position under the roofs for a call of `time_ms` in a window of `calls` calls; None without a time."""
        if time_ms <= 0.0:
            return None
        per_s = 1e3 / time_ms
        memory_share = memory_floor_ms(self.tensor_bytes, self.ceilings, calls=calls) / time_ms
        operations = sum(self.flops.values()) if self.flops is not None else None
        arithmetic_ms = arithmetic_floor_ms(self.flops or {}, self.ceilings)
        arithmetic_share = arithmetic_ms / time_ms if operations is not None else None
        share = max(memory_share, arithmetic_share or 0.0)
        bound = "memory" if share == memory_share else "arithmetic"
        return {
            "bytes": self.tensor_bytes,
            "bytes_per_s": self.tensor_bytes * per_s,
            "memory_share": memory_share,
            "flops": dict(self.flops) if self.flops is not None else None,
            "flops_per_s": operations * per_s if operations is not None else None,
            "arithmetic_share": arithmetic_share,
            "flops_per_byte": operations / self.tensor_bytes if operations and self.tensor_bytes else None,
            "bound": bound if share >= BUSY_SHARE else "neither",
            "roof_bytes_per_s": self.ceilings.memory_bytes_per_s,
            "roof_flops_per_s": operations / arithmetic_ms * 1e3 if operations and arithmetic_ms else None,
        }


def position_at(position: dict[str, Any] | None, time_ms: float, other_ms: float) -> dict[str, Any] | None:
    """The position of a call of `time_ms`, converted to `other_ms`."""
    if position is None or other_ms <= 0.0:
        return position
    return position | {name: position[name] * time_ms / other_ms for name in BY_TIME if position[name] is not None}
