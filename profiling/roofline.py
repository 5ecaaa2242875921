"""Physics: what a call must at least take on this card, and which times are therefore impossible.

Only bytes that were surely written can make a time impossible. Inputs may be read in part (a gather) and arithmetic may
be saved (a product with a diagonal matrix, a folded scale), so that neither proves anything against a kernel.
"""

from __future__ import annotations

from profiling.ceilings import Ceilings
from profiling.flags import duration

HEADROOM = 1.25
"""How much better than the best rate measured a kernel is granted to be."""

RESOLUTIONS_APART = 3.0


def floor_ms(moved_bytes: float, flops: float, dtype: str | None, ceilings: Ceilings, *, calls: int = 1) -> float:
    """The least time in ms of one of `calls` calls in a window; 0.0 where no ceiling is known.

    `moved_bytes` and `flops` are per call. `dtype` names the arithmetic ("float32", "tf32", ...); None grants the
    fastest that the card has. Headroom is not in it.
    """
    return max(memory_floor_ms(moved_bytes, ceilings, calls=calls), _arithmetic_floor_ms(flops, dtype, ceilings))


def memory_floor_ms(moved_bytes: float, ceilings: Ceilings, *, calls: int = 1) -> float:
    """The least time in ms of moving so many bytes in each of `calls` calls.

    All of them pass the L2, and what does not fit into it passes the memory. A window is charged as a whole: what its
    last calls leave in the L2 is the only part that may stay there.
    """
    total = moved_bytes * calls
    beyond = max(total - ceilings.l2_bytes, 0.0)
    cached = total / ceilings.l2_bytes_per_s if ceilings.l2_bytes_per_s else 0.0
    stored = beyond / ceilings.memory_bytes_per_s if ceilings.memory_bytes_per_s else 0.0
    return max(cached, stored) / calls * 1e3


def impossible(
    time_ms: float, written_bytes: float, ceilings: Ceilings, *, calls: int = 1, resolution_ms: float = 0.0
) -> str | None:
    """The flag of a trusted time that is too short for the bytes that a call surely wrote; None when it may be true.

    `resolution_ms` is what the time per call may be off by its measurement.
    """
    floor = memory_floor_ms(written_bytes, ceilings, calls=calls) / HEADROOM
    if time_ms + RESOLUTIONS_APART * resolution_ms >= floor:
        return None
    rates = [
        f"{rate / 1e12:.3g} TB/s {where}"
        for rate, where in ((ceilings.l2_bytes_per_s, "in its L2"), (ceilings.memory_bytes_per_s, "in its memory"))
        if rate
    ]
    return (
        f"{duration(time_ms)} a call is too short for the {written_bytes / 1e6:.3g} MB that each call writes: "
        f"{duration(floor)} is the least on this card, at {HEADROOM:g} times its measured rates ({', '.join(rates)})"
    )


def fewer_operations(
    time_ms: float, reference_flops: float, ceilings: Ceilings, *, resolution_ms: float = 0.0
) -> str | None:
    """A note, not a flag, for a kernel too fast to do the reference's arithmetic even at the card's best rate."""
    floor = _arithmetic_floor_ms(reference_flops, None, ceilings) / HEADROOM
    if time_ms + RESOLUTIONS_APART * resolution_ms >= floor:
        return None
    return (
        f"{duration(time_ms)} a call is too short for the reference's {reference_flops / 1e9:.3g} GFLOP at any rate of "
        f"this card (at least {duration(floor)}): the kernel gets its answer with less arithmetic"
    )


def _arithmetic_floor_ms(flops: float, dtype: str | None, ceilings: Ceilings) -> float:
    rate = max(ceilings.flops.values(), default=None) if dtype is None else ceilings.flops.get(dtype)
    return flops / rate * 1e3 if rate else 0.0
