"""Physics: what a call must at least take on this card, and which times are therefore impossible.

Bytes that were surely written make a time impossible, for nothing spares a kernel to write its answer. Operations are
of the reference's way to it, and another way may need far fewer: they make a time doubtful, with a wide allowance.
Inputs may be read in part (a gather), and prove nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from domain.flags import Flag, FlagCode
from profiling.gpu.measured_peaks import Ceilings
from profiling.stats.flags import duration

HEADROOM = 1.25
"""How much better than the best rate measured a kernel is granted to be."""

RESOLUTIONS_APART = 3.0

SAVINGS = 8.0
"""How many times fewer operations than torch counts an honest kernel is granted, before its time is doubted: Winograd's
F(4x4, 3x3) multiplies 4 times less, causal attention computes half of what is counted, and both may meet; Strassen
saves an eighth a level. Narrower arithmetic than the reference's (bfloat16 for tf32: 2, fp8 for tf32: 4) is within it.
What saves more (a product that was never needed, one with a diagonal or sparse matrix, an FFT for a large convolution)
gets the flag, which says so and changes nothing."""

RATES_UNKNOWN = Flag(
    FlagCode.GPU_RATES_UNKNOWN,
    "the peak rates of this card could not be measured (the worker's log says why): no time was checked against them",
)
"""The flag of every time on such a card."""

ALIKE: Mapping[str, tuple[str, ...]] = {
    "float32": ("float32", "tf32"),
    "float16": ("float16", "bfloat16"),
    "bfloat16": ("float16", "bfloat16"),
    "float64": ("float64",),
    "float8_e4m3fn": ("float8_e4m3fn",),
    "float8_e5m2": ("float8_e4m3fn",),
}
"""The rates that arithmetic in a dtype may reach; whatever is not here may reach the card's best one."""


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
) -> Flag | None:
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
    return Flag(
        FlagCode.TOO_FAST_FOR_MEMORY,
        f"{duration(time_ms)} a call is too short for the {written_bytes / 1e6:.3g} MB that each call writes: "
        f"{duration(floor)} is the least on this card, at {HEADROOM:g} times its measured rates ({', '.join(rates)})",
        {"call_ms": time_ms, "written_bytes": written_bytes, "minimum_ms": floor},
    )


def arithmetic_floor_ms(flops: Mapping[str, float], ceilings: Ceilings) -> float:
    """The least time in ms of so many operations by dtype, at the best rate measured for each; 0.0 for unknown rates.

    Headroom and savings are not in it.
    """
    return sum(count / rate for dtype, count in flops.items() if (rate := _rate(dtype, ceilings))) * 1e3


def too_few_operations(
    time_ms: float, flops: Mapping[str, float], ceilings: Ceilings, *, whose: str, resolution_ms: float = 0.0
) -> Flag | None:
    """The flag of a trusted time in which the card cannot do an eighth of the operations; None when it may be true.

    `flops` are those of one call of `whose` torch operators, by dtype.
    """
    full = arithmetic_floor_ms(flops, ceilings)
    floor = full / HEADROOM / SAVINGS
    if time_ms + RESOLUTIONS_APART * resolution_ms >= floor:
        return None
    most = max(flops, key=lambda dtype: flops[dtype])
    rate = (_rate(most, ceilings) or 0.0) / 1e12
    return Flag(
        FlagCode.TOO_FAST_FOR_ARITHMETIC,
        f"{duration(time_ms)} a call is too short for {whose} {sum(flops.values()) / 1e9:.3g} GFLOP, most of it in "
        f"{most}: at the {rate:.3g} TFLOP/s measured on this card they take {duration(full)}, and an eighth of them "
        f"{duration(floor)} even at {HEADROOM:g} times that; the kernel gets its answer with far less arithmetic, or "
        "not in this time",
        {"call_ms": time_ms, "operations_flop": sum(flops.values()), "dtype": most, "minimum_ms": floor},
    )


def _rate(dtype: str, ceilings: Ceilings) -> float | None:
    """The best that was measured for arithmetic of that dtype, and of the whole card where that is not known."""
    known = [ceilings.flops[name] for name in ALIKE.get(dtype, ()) if name in ceilings.flops]
    return max(known or ceilings.flops.values(), default=None)
