"""Compares the candidate's outputs with the reference's: every element, in float64, on the device that holds them.

An element is right when it is equal (a NaN matches a NaN, an infinity the same infinity) or when both are finite and
|actual - expected| <= atol + rtol * |expected|. Complex elements use the modulus for |.|; their NaNs and infinities are
compared part by part. Integers and bools must be equal. Extra memory stays under 640 MiB for any size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from validation.compare.bitwise import bits, differing, pieces
from validation.compare.element_errors import measure_equal_rows, measure_rows, raw_values
from validation.compare.result import CallComparison, clamp_finite, merge_comparisons
from validation.compare.tolerance import Tolerance, effective_tolerance, strict

__all__ = ["CallComparison", "agree", "compare", "compare_stacked"]

PIECE = 1 << 22
"""Maximum elements of one call in one comparison, half as many complex ones; each needs under 128 bytes of temporaries.
"""
BATCH = 1 << 23
"""Maximum elements of several calls in one comparison, half as many complex ones. Batching hides the launch overhead,
which exceeds the work for small outputs."""
CPU_BATCH = 1 << 16
"""The same limit on the CPU, where nothing is launched: temporaries of 512 KiB stay in its caches
(docs/measurements.md)."""

Rows = list[tuple[int, list[float]]]
"""The measures of one output of a call, in pieces: the flat index where each begins, and its measures."""


def compare(expected: list[torch.Tensor], actual: list[torch.Tensor], tolerance: Tolerance) -> CallComparison:
    """Compares one call's outputs, in order. Never raises because of the kernel's outputs: a wrong shape is a
    mismatch."""
    want, got = ([tensor.unsqueeze(0) for tensor in tensors] for tensors in (expected, actual))
    return compare_stacked(want, got, tolerance)[0]


def compare_stacked(
    expected: list[torch.Tensor], actual: list[torch.Tensor], requested: Tolerance
) -> list[CallComparison]:
    """Compares many calls at once; each tensor stacks one output of all calls, [calls, *shape], with any strides.

    Gives the result of `compare` for each call, in far less time for small outputs. A bitwise test comes first: one
    pass instead of fifty. On a GPU all calls share some fifty launches, and the host synchronises twice: after the
    bitwise test and after the measuring. Empty lists count as one call.
    """
    stacks = [*expected, *actual]
    calls = len(stacks[0]) if stacks else 1
    if fault := _fault(expected, actual):
        return [_faulty(expected, fault, requested)] * calls
    pairs = [(raw_values(want), raw_values(got)) for want, got in zip(expected, actual, strict=True)]
    unlike = torch.stack([differing(want, got, _batch(want)) for want, got in pairs]).tolist()
    equal = [_equal(want, requested) for want, _ in pairs]
    comparisons = [merge_comparisons(equal)] * calls
    rows = _measured(pairs, unlike, requested)
    for call in {call for _, call in rows}:
        parts = list(equal)
        for index, (want, got) in enumerate(zip(expected, actual, strict=True)):
            if unlike[index][call]:
                parts[index] = _summary(index, call, want, got, requested, rows[index, call])
        comparisons[call] = merge_comparisons(parts)
    return comparisons


def agree(ones: list[torch.Tensor], others: list[torch.Tensor], requested: Tolerance) -> bool:
    """Whether every call of these stacks passes."""
    return all(call.passed for call in compare_stacked(ones, others, requested))


def _batch(stack: torch.Tensor) -> int:
    return (CPU_BATCH if stack.is_cpu else BATCH) // (1 + stack.is_complex())


def _faulty(expected: list[torch.Tensor], fault: str, requested: Tolerance) -> CallComparison:
    count = sum(stack[0].numel() for stack in expected)
    return CallComparison(requested, count, count, strict_mismatch_count=count, relative_rms_error=None, fault=fault)


def _fault(expected: list[torch.Tensor], actual: list[torch.Tensor]) -> str | None:
    if len(expected) != len(actual):
        return f"The reference has {len(expected)} output tensors, the kernel {len(actual)}"
    if not expected:
        return "There are no outputs to compare: return a tensor, or mark an argument as output"
    for index, (want, got) in enumerate(zip(expected, actual, strict=True)):
        if want.shape != got.shape:
            shapes = f"expected shape {list(want.shape[1:])}, got {list(got.shape[1:])}"
            return f"Shape mismatch in output {index}: {shapes}"
        if want.dtype != got.dtype:
            return f"Output {index} has the wrong dtype: expected dtype {want.dtype}, got {got.dtype}"
        if want.device != got.device:
            return f"Output {index} is on the wrong device: expected device {want.device}, got {got.device}"
    return None


def _measured(
    pairs: list[tuple[torch.Tensor, torch.Tensor]], unlike: list[list[bool]], requested: Tolerance
) -> dict[tuple[int, int], Rows]:
    """Measures each (output, call) whose bits differ."""
    labels, measured = [], []
    for index, (want, got) in enumerate(pairs):
        tolerance, tight = effective_tolerance(want.dtype, requested), strict(want.dtype)
        for calls, start, expected_rows, actual_rows in _sections(want, got, unlike[index]):
            labels += [(index, call, start) for call in calls]
            # Fifty passes become three where a piece has equal bits. Only the CPU knows that without a synchronisation.
            if expected_rows.is_cpu and torch.equal(bits(expected_rows), bits(actual_rows)):
                measured.append(measure_equal_rows(expected_rows))
            else:
                measured.append(measure_rows(expected_rows, actual_rows, tolerance, tight))
    by_call: dict[tuple[int, int], Rows] = {}
    for (index, call, start), row in zip(labels, torch.cat(measured).tolist() if measured else (), strict=True):
        if unlike[index][call]:
            by_call.setdefault((index, call), []).append((start, row))
    return by_call


def _sections(
    want: torch.Tensor, got: torch.Tensor, unlike: list[bool]
) -> Iterator[tuple[range, int, torch.Tensor, torch.Tensor]]:
    """Yields what to measure at once: a range of calls, the first flat index in each call, and both sides' rows.

    The range may include calls with equal bits, because to leave them out would take a copy.
    """
    size = max(1, _batch(want) // max(1, want[0].numel()))
    for first in range(0, len(want), size):
        numbers = [call for call in range(first, min(first + size, len(want))) if unlike[call]]
        if not numbers:
            continue
        calls = range(numbers[0], numbers[-1] + 1)
        if len(calls) > 1:
            expected_rows, actual_rows = (
                stack[calls.start : calls.stop].reshape(len(calls), -1) for stack in (want, got)
            )
            yield calls, 0, expected_rows, actual_rows
            continue
        for start, one, other in pieces(want[calls[0]], got[calls[0]], PIECE // (1 + want.is_complex())):
            yield calls, start, one.unsqueeze(0), other.unsqueeze(0)


def _equal(stack: torch.Tensor, requested: Tolerance) -> CallComparison:
    return CallComparison(requested, stack[0].numel(), strict_tolerance=strict(stack.dtype))


def _summary(
    index: int, call: int, expected: torch.Tensor, actual: torch.Tensor, requested: Tolerance, rows: Rows
) -> CallComparison:
    """One call's output, summarised from the measures of its pieces."""
    wrong, nonfinite, strictly_wrong, largest, relative, total, squares, sizes, _ = (
        rows[0][1] if len(rows) == 1 else _together([row for _, row in rows])
    )
    first = next((int(start + row[-1]) for start, row in rows if row[0]), None)
    return CallComparison(
        requested,
        expected.numel() // len(expected),
        mismatch_count=int(wrong),
        nonfinite_count=int(nonfinite),
        strict_mismatch_count=int(strictly_wrong),
        strict_tolerance=strict(expected.dtype),
        max_abs_diff=largest,
        max_rel_diff=relative,
        sum_abs_diff=clamp_finite(total),
        relative_rms_error=_ratio(squares, sizes),
        first_mismatch=None if first is None else describe_element(index, first, expected[call], actual[call]),
    )


def _together(rows: list[list[float]]) -> list[float]:
    """Combines the measures of several pieces, except the last column, which is a position in one piece."""
    columns = list(zip(*rows, strict=True))
    return [(max if index in (3, 4) else sum)(column) for index, column in enumerate(columns)]


def describe_element(output: int, flat: int, expected: torch.Tensor, actual: torch.Tensor) -> dict[str, Any]:
    """The element at a flat index in C order, with both values; JSON-ready."""
    index = []
    for size in reversed(expected.shape):
        flat, position = divmod(flat, size)
        index.append(position)
    place = tuple(reversed(index))
    return {
        "output": output,
        "index": list(place),
        "expected": _json(expected[place]),
        "actual": _json(actual[place]),
    }


def _json(element: torch.Tensor) -> Any:
    """A number that JSON can hold, else its text."""
    if element.dtype is torch.bool:
        byte = int(element.view(torch.uint8).item())
        return bool(byte) if byte in (0, 1) else f"byte 0x{byte:02X}"
    value = element.item()
    return value if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)) else str(value)


def _ratio(differences: float, sizes: float) -> float | None:
    if differences == 0:
        return 0.0
    ratio = differences / sizes if sizes else math.nan
    return math.sqrt(ratio) if math.isfinite(ratio) else None
