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

from validation.bits import bits, differ, identical, pieces
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
"""Elements at most of an output that shares a look for equal bits with others of its size on a GPU: one at each costs
more than it saves."""
CPU_SMALL = 1 << 14
"""The same on the CPU, where stacking them is two passes more."""

Call = tuple[list[torch.Tensor], list[torch.Tensor]]
"""Expected and actual outputs."""


def compare(expected: list[torch.Tensor], actual: list[torch.Tensor], tolerance: Tolerance) -> CallComparison:
    """Compares one call's outputs, in order. Never raises for what the kernel gave: a wrong shape is a wrong answer."""
    return compare_calls([(expected, actual)], tolerance)[0]


def compare_calls(calls: list[Call], requested: Tolerance) -> list[CallComparison]:
    """Compares each call's (expected, actual) outputs; what `compare` says of each, in far less time for small outputs.

    Outputs are looked at for equal bits first, which is one pass in place of fifty. On a GPU the rest is some fifty
    launches, whatever the size: calls of one form share them.
    """
    plain = [(_plain_tensors(expected), _plain_tensors(actual)) for expected, actual in calls]
    found: list[CallComparison] = []
    for fault, same_form in groupby(plain, key=_form):
        together = list(same_form)
        if isinstance(fault, str):
            found += [_faulty(call, fault, requested) for call in together]
            continue
        found += _of_one_form(together, requested)
    return found


def _of_one_form(calls: list[Call], requested: Tolerance) -> list[CallComparison]:
    largest = max(tensor.numel() * (1 + tensor.is_complex()) for tensor in calls[0][0])
    on_cpu = calls[0][0][0].is_cpu
    size = max(1, (CPU_BATCH if on_cpu else BATCH) // max(1, largest))
    small = largest <= (CPU_SMALL if on_cpu else SMALL)
    alike = _small_alike(calls, size) if small and len(calls) > 1 else _alike(calls)
    unlike = [number for number, outputs in enumerate(alike) if not all(outputs)]
    found: dict[int, CallComparison] = {}
    for first in range(0, len(unlike), size):
        numbers = unlike[first : first + size]
        judged = _batch([calls[number] for number in numbers], [alike[number] for number in numbers], requested)
        found.update(zip(numbers, judged, strict=True))
    equal = joined([_equal(want, requested) for want in calls[0][0]])
    return [found.get(number, equal) for number in range(len(calls))]


def _alike(calls: list[Call]) -> list[list[bool]]:
    """Of each call's outputs, which have the same bits. On a GPU all are asked, then all waited for."""
    pairs = [list(zip(*call, strict=True)) for call in calls]
    if calls[0][0][0].is_cpu:
        return [[identical(want, got) for want, got in outputs] for outputs in pairs]
    differing = torch.stack([differ(want, got) for outputs in pairs for want, got in outputs])
    return [[not each for each in outputs] for outputs in differing.view(len(calls), -1).tolist()]


def _small_alike(calls: list[Call], size: int) -> list[list[bool]]:
    """The same of small outputs, `size` calls at a time; that none is known to be where the first call's differ.

    Who rounds differently does so in every call: a look at all of them would be in vain.
    """
    outputs = range(len(calls[0][0]))
    empty = [not want.numel() for want in calls[0][0]]
    if not all(identical(want, got) for want, got in zip(*calls[0], strict=True)):
        return [empty] * len(calls)
    alike: list[list[bool]] = []
    for first in range(0, len(calls), size):
        some = calls[first : first + size]
        # One output after the other: `size` bounds what the stacks of one take.
        rows = (_stacked([(expected[index], actual[index]) for expected, actual in some]) for index in outputs)
        differing = torch.stack([(want != got).any(dim=-1) for want, got in rows], dim=-1)
        alike += [[not each for each in one] for one in differing.tolist()]
    return alike


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


def _batch(calls: list[Call], alike: list[list[bool]], requested: Tolerance) -> list[CallComparison]:
    """Calls of one form, together small enough to be one piece, or one call of any size."""
    parts: list[list[CallComparison]] = [[] for _ in calls]
    for index in range(len(calls[0][0])):
        pairs = [(expected[index], actual[index]) for expected, actual in calls]
        unlike = [pair for pair, same in zip(pairs, alike, strict=True) if not same[index]]
        rows = iter(_rows(unlike, requested) if len(calls) > 1 and unlike else ())
        for part, pair, same in zip(parts, pairs, alike, strict=True):
            if same[index]:
                part.append(_equal(pair[0], requested))
            elif len(calls) == 1:
                part.append(_output(index, *pair, requested))
            else:
                part.append(_summary(index, *pair, requested, [0], [next(rows)]))
    return [joined(part) for part in parts]


def _rows(pairs: list[tuple[torch.Tensor, torch.Tensor]], requested: Tolerance) -> list[list[float]]:
    """The measures of each pair, none of them alike."""
    dtype = pairs[0][0].dtype
    want, got = (rows.view(dtype) for rows in _stacked(pairs))
    measured: list[list[float]] = measures(want, got, applied(dtype, requested), strict(dtype)).tolist()
    return measured


def _stacked(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    """The bits of each side's tensors, [pairs, elements]."""
    want, got = (torch.stack([bits(tensor).reshape(-1) for tensor in tensors]) for tensors in zip(*pairs, strict=True))
    return want, got


def _output(index: int, expected: torch.Tensor, actual: torch.Tensor, requested: Tolerance) -> CallComparison:
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
