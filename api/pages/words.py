"""Formats figures for a person."""

from __future__ import annotations

import math
from typing import Any

_ABBREVIATIONS = {"gpu": "GPU", "cpu": "CPU"}
NONE = "–"
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_OPERATIONS = ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s"))
_BYTES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def figure(value: Any, digits: int = 3) -> str:
    """A number with that many significant digits, without an exponent where that stays short."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return NONE
    if value == 0:
        return "0"
    power = math.floor(math.log10(abs(value)))
    if power < -4 or power > 9:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, digits - 1 - power)}f}"


def plain(value: Any) -> str:
    """A number in its shortest form, such as a tolerance or a mean count."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return NONE
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def duration(ms: Any, digits: int = 3) -> str:
    """A time in ms, in a suitable unit."""
    if not isinstance(ms, int | float) or not math.isfinite(ms):
        return NONE
    if ms == 0:
        return "0 s"
    size, unit = next(((size, unit) for size, unit in _TIMES if abs(ms) / 1e3 >= size), _TIMES[-1])
    return f"{figure(ms / 1e3 / size, digits)} {unit}"


def microseconds(us: Any) -> str:
    """A time in µs, in a suitable unit."""
    return duration(us / 1e3) if isinstance(us, int | float) else NONE


def count(value: Any) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) and math.isfinite(value) else NONE


def reference(kernel: str | None, digest: str | None) -> str:
    """A reference by its entry point and the start of its digest, since many have the same entry point."""
    short = (digest or "")[:8]
    return f"{kernel} ({short})" if kernel and short else kernel or short or NONE


def counted(value: Any, one: str, many: str | None = None) -> str:
    """A whole number with its noun: "1 call", "2 calls"."""
    return f"{count(value)} {one if value == 1 else many or one + 's'}"


def share(part: Any) -> str:
    """A part of one, in per cent."""
    if not isinstance(part, int | float) or not math.isfinite(part):
        return NONE
    percent = 100 * part
    return f"{figure(percent, 2 if percent < 10 else 3)} %"


def size(value: Any) -> str:
    """A number of bytes, in a suitable unit."""
    if not isinstance(value, int | float):
        return NONE
    for unit, name in _BYTES:
        if value >= unit:
            return f"{figure(value / unit)} {name}"
    return f"{value:.0f} B"


def flops_per_s(rate: Any) -> str:
    """Operations a second, in a suitable unit."""
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not math.isfinite(rate):
        return NONE
    size, unit = next(((size, unit) for size, unit in _OPERATIONS if rate >= size), _OPERATIONS[-1])
    return f"{figure(rate / size)} {unit}"


def name(word: Any) -> str:
    """An identifier as words: `other_gpu_processes` is "other GPU processes"."""
    return " ".join(_ABBREVIATIONS.get(part, part) for part in str(word).split("_"))


def sentence(text: str) -> str:
    """The text with a final full stop."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."
