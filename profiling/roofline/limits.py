"""The minimum time of a call on this card, and the flags of times below it.

A kernel has to write its outputs, so that bytes which were certainly written make a shorter time impossible. Operations
are those of the reference, and another algorithm may need far fewer: they make a time doubtful, with a wide allowance.
Inputs may be read in part (a gather) and prove nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from profiling.gpu.measured_peaks import Ceilings
from profiling.stats.flags import duration

HEADROOM = 1.25
"""Maximum ratio of a kernel's rate to the best measured rate."""

RESOLUTIONS = 3.0
"""Tolerance of a time below the minimum, in units of its resolution."""

SAVINGS = 8.0
"""Maximum ratio of the operations that torch counts to those of an honest kernel. Winograd's F(4x4, 3x3) multiplies 4
times less, causal attention computes half of the count, and both may combine; Strassen saves an eighth a level.
Narrower arithmetic than the reference's (bfloat16 for tf32: 2, fp8 for tf32: 4) is within it. A larger saving (a
product that is not needed, a diagonal or sparse matrix, an FFT for a large convolution) gets the flag, which changes no
verdict."""


BOUNDING_RATES: Mapping[str, tuple[str, ...]] = {
    "float32": ("float32", "tf32"),
    "float16": ("float16", "bfloat16"),
    "bfloat16": ("float16", "bfloat16"),
    "float64": ("float64",),
    "float8_e4m3fn": ("float8_e4m3fn",),
    "float8_e5m2": ("float8_e4m3fn",),
}
"""The measured rates that bound arithmetic in a dtype; a dtype that is not listed may reach the card's best one."""


def memory_floor_ms(moved_bytes: float, ceilings: Ceilings, *, calls: int = 1) -> float:
    """Minimum time per call in ms, if each of `calls` calls moves `moved_bytes` bytes.

    All bytes pass through the L2; those that do not fit into it also pass through memory. The window counts as a whole,
    because only what its last calls leave in the L2 may stay there.
    """
    total = moved_bytes * calls
    beyond = max(total - ceilings.l2_bytes, 0.0)
    cached = total / ceilings.l2_bytes_per_s if ceilings.l2_bytes_per_s else 0.0
    stored = beyond / ceilings.memory_bytes_per_s if ceilings.memory_bytes_per_s else 0.0
    return max(cached, stored) / calls * 1e3


def impossible(
    time_ms: float, written_bytes: float, ceilings: Ceilings, *, calls: int = 1, resolution_ms: float = 0.0
) -> Flag | None:
    """The flag of a time that is too short for the bytes that a call certainly wrote; None if it is possible.

    `resolution_ms` is the measurement's error of the time per call.
    """
    floor = memory_floor_ms(written_bytes, ceilings, calls=calls) / HEADROOM
    if time_ms + RESOLUTIONS * resolution_ms >= floor:
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
    """Minimum time in ms of the operations by dtype, at the best rate measured for each; 0.0 for unknown rates.

    It does not include HEADROOM and SAVINGS.
    """
    return sum(count / rate for dtype, count in flops.items() if (rate := _rate(dtype, ceilings))) * 1e3


def too_few_operations(
    time_ms: float, flops: Mapping[str, float], ceilings: Ceilings, *, whose: str, resolution_ms: float = 0.0
) -> Flag | None:
    """The flag of a time in which the card cannot do an eighth of the operations; None if it is possible.

    `flops` are the operations of one call of `whose` torch operators, by dtype.
    """
    full = arithmetic_floor_ms(flops, ceilings)
    floor = full / HEADROOM / SAVINGS
    if time_ms + RESOLUTIONS * resolution_ms >= floor:
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
    """The best measured rate of that dtype; the card's best one if that is unknown."""
    rates = [ceilings.flops[name] for name in BOUNDING_RATES.get(dtype, ()) if name in ceilings.flops]
    return max(rates or ceilings.flops.values(), default=None)
