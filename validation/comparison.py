"""The candidate's outputs against the reference's: every element, in float64, on the device where they lie.

An element is right when it is equal (a NaN matches a NaN, an infinity the same infinity) or when both are finite and
|actual - expected| <= atol + rtol * |expected|. Complex elements: the modulus in place of |.|, NaNs and infinities part
by part. Integers and bools are exact. Extra memory stays under 640 MiB whatever the size.
"""

from __future__ import annotations

import math
from itertools import groupby
from typing import Any

import torch

from validation.bits import bits, identical, pieces
from validation.call_comparison import CallComparison, finite, joined, merge
from validation.elements import measures
from validation.tolerance import Tolerance, applied, strict

__all__ = ["CallComparison", "compare", "compare_calls", "merge"]

PIECE = 1 << 22
"""Elements compared at a time, half as many complex ones: under 128 bytes of temporaries for each."""
BATCH = 1 << 23
"""Elements of several calls' tensors compared at a time, half as many complex ones: what is launched for them
costs more than what it does."""
CPU_BATCH = 1 << 18
"""The same on the CPU, where nothing is launched: temporaries of 2 MiB stay in its caches (docs/measurements.md)."""
SMALL = 1 << 19
"""Elements of a tensor at most for that: larger ones are looked at one by one, bits first."""

Call = tuple[list[torch.Tensor], list[torch.Tensor]]
"""Expected and actual outputs."""


def compare(expected: list[torch.Tensor], actual: list[torch.Tensor], tolerance: Tolerance) -> CallComparison:
    """Compares one call's outputs, in order. Never raises for what the kernel gave: a wrong shape is a wrong answer."""
    return compare_calls([(expected, actual)], tolerance)[0]


def compare_calls(calls: list[Call], requested: Tolerance) -> list[CallComparison]:
    """Compares each call's (expected, actual) outputs; what `compare` says of each, in far less time for small outputs.

    On a GPU a comparison is some fifty launches, whatever the size: calls of one form share them.
    """
    plain = [(_plain_tensors(expected), _plain_tensors(actual)) for expected, actual in calls]
    found: list[CallComparison] = []
    for fault, same_form in groupby(plain, key=_form):
        together = list(same_form)
        if isinstance(fault, str):
            found += [_faulty(call, fault, requested) for call in together]
            continue
        largest = max(tensor.numel() * (1 + tensor.is_complex()) for tensor in together[0][0])
        batch = CPU_BATCH if together[0][0][0].is_cpu else BATCH
        size = max(1, batch // max(1, largest)) if largest <= SMALL else 1
        for first in range(0, len(together), size):
            found += _batch(together[first : first + size], requested)
    return found


def _form(call: Call) -> str | tuple[tuple[torch.Size, torch.dtype, torch.device], ...]:
    """What is wrong with the form of the outputs, as a sentence; else the form, so that equal ones go together."""
    return _fault(*call) or tuple((tensor.shape, tensor.dtype, tensor.device) for tensor in call[0])


def _faulty(call: Call, fault: str, requested: Tolerance) -> CallComparison:
    count = sum(tensor.numel() for tensor in call[0])
    return CallComparison(requested, count, count, strict_mismatch_count=count, relative_rms_error=None, fault=fault)


def _plain_tensors(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Without gradients, and with the conjugations and negations done that torch only notes on a view."""
    return [tensor.detach().resolve_conj().resolve_neg() for tensor in tensors]


def _fault(expected: list[torch.Tensor], actual: list[torch.Tensor]) -> str | None:
    if len(expected) != len(actual):
        return f"The reference has {len(expected)} output tensors, the kernel {len(actual)}"
    if not expected:
        return "There are no outputs to compare: return a tensor, or mark an argument as output"
    for index, (want, got) in enumerate(zip(expected, actual, strict=True)):
        if want.shape != got.shape:
            return f"Shape mismatch in output {index}: expected shape {list(want.shape)}, got {list(got.shape)}"
        if want.dtype != got.dtype:
            return f"Output {index} has the wrong dtype: expected dtype {want.dtype}, got {got.dtype}"
        if want.device != got.device:
            return f"Output {index} is on the wrong device: expected device {want.device}, got {got.device}"
    return None


def _batch(calls: list[Call], requested: Tolerance) -> list[CallComparison]:
    """Calls of one form, together small enough to be one piece, or one call of any size."""
    outputs = range(len(calls[0][0]))
    if len(calls) == 1:
        expected, actual = calls[0]
        return [joined([_output(index, expected[index], actual[index], requested) for index in outputs])]
    parts: list[list[CallComparison]] = [[] for _ in calls]
    for index in outputs:
        pairs = [(expected[index], actual[index]) for expected, actual in calls]
        rows = _rows([want for want, _ in pairs], [got for _, got in pairs], requested)
        for part, pair, row in zip(parts, pairs, rows, strict=True):
            part.append(_summary(index, *pair, requested, [0], [row]) if row else _equal(pair[0], requested))
    return [joined(part) for part in parts]


def _rows(expected: list[torch.Tensor], actual: list[torch.Tensor], requested: Tolerance) -> list[list[float]]:
    """The measures of each pair; empty ones for tensors without elements, and on the CPU for equal ones."""
    pairs = list(zip(expected, actual, strict=True))
    rows: list[list[float]] = [[] for _ in pairs]
    # On a GPU each look at the bits would wait for the device; here it is one pass in place of fifty.
    unlike = [n for n, (want, got) in enumerate(pairs) if want.numel() and not (want.is_cpu and identical(want, got))]
    if not unlike:
        return rows
    dtype = expected[0].dtype
    want, got = (
        torch.stack([bits(tensors[number]) for number in unlike]).view(dtype).reshape(len(unlike), -1)
        for tensors in (expected, actual)
    )
    measured = measures(want, got, applied(dtype, requested), strict(dtype)).tolist()
    for number, row in zip(unlike, measured, strict=True):
        rows[number] = row
    return rows


def _output(index: int, expected: torch.Tensor, actual: torch.Tensor, requested: Tolerance) -> CallComparison:
    if identical(expected, actual):
        return _equal(expected, requested)
    tolerance, tight = applied(expected.dtype, requested), strict(expected.dtype)
    starts, measured = [], []
    for start, want, got in pieces(expected, actual, PIECE // (1 + expected.is_complex())):
        starts.append(start)
        measured.append(measures(want.unsqueeze(0), got.unsqueeze(0), tolerance, tight))
    rows = torch.cat(measured).tolist()  # The one synchronisation with the device.
    return _summary(index, expected, actual, requested, starts, rows)


def _equal(expected: torch.Tensor, requested: Tolerance) -> CallComparison:
    return CallComparison(requested, expected.numel(), strict_tolerance=strict(expected.dtype))


def _summary(
    index: int,
    expected: torch.Tensor,
    actual: torch.Tensor,
    requested: Tolerance,
    starts: list[int],
    rows: list[list[float]],
) -> CallComparison:
    """One output from the measures of its pieces."""
    columns = list(zip(*rows, strict=True))
    first = next((int(start + row[-1]) for start, row in zip(starts, rows, strict=True) if row[0]), None)
    return CallComparison(
        requested,
        expected.numel(),
        mismatch_count=int(sum(columns[0])),
        nonfinite_count=int(sum(columns[1])),
        strict_mismatch_count=int(sum(columns[2])),
        strict_tolerance=strict(expected.dtype),
        max_abs_diff=max(columns[3]),
        max_rel_diff=max(columns[4]),
        sum_abs_diff=finite(sum(columns[5])),
        relative_rms_error=_ratio(sum(columns[6]), sum(columns[7])),
        first_mismatch=None if first is None else described(index, first, expected, actual),
    )


def described(output: int, flat: int, expected: torch.Tensor, actual: torch.Tensor) -> dict[str, Any]:
    """The element at that flat index, in C order, with both values; JSON-ready."""
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
    """A number that JSON has, or the text of one that it does not."""
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
