"""Reduces rows of two tensors to a few measures of their difference, without synchronising the device."""

from __future__ import annotations

import sys

import torch

from validation.compare.tolerance import Tolerance


def raw_values(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as it is compared: detached, with pending conjugation and negation applied.

    Bools become bytes: poison is neither true nor false, and a copy as bool would turn it into true.
    """
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return tensor.view(torch.uint8) if tensor.dtype is torch.bool else tensor


def measure_rows(expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance, tight: Tolerance) -> torch.Tensor:
    """Nine float64 measures, [rows, 9], of each row of two [rows, n] tensors from `raw_values`, on their device.

    The counts of wrong elements, of wrong elements with a NaN or infinity, and of elements wrong under `tight`; the
    largest absolute and relative difference; the sums of the absolute difference, of its square and of expected
    squared; the position of the first wrong element (0 when none is).
    """
    compared = _compared(expected, actual)
    _, finite, difference, size = compared
    sizes = size.square().sum(dim=-1)
    wrong = _wrong(compared, sizes, tolerance)
    strictly_wrong = _wrong(compared, sizes, tight)
    relative = (difference / size).masked_fill_(size == 0, 0.0).clamp_(max=sys.float_info.max)
    difference.masked_fill_(~finite, 0.0).clamp_(max=sys.float_info.max)
    numbers = (
        _count(wrong),
        _count(wrong & ~finite),
        _count(strictly_wrong),
        difference.amax(dim=-1),
        relative.amax(dim=-1),
        difference.sum(dim=-1),
        difference.square_().sum(dim=-1),
        sizes,
        wrong.view(torch.uint8).argmax(dim=-1),
    )
    return torch.stack([number.to(torch.float64) for number in numbers], dim=-1)


def measure_equal_rows(expected: torch.Tensor) -> torch.Tensor:
    """The result of `measure_rows` for rows whose bits are equal on both sides: zeros but for the sum of squares."""
    if expected.dtype.is_floating_point or expected.dtype.is_complex:
        parts = _parts(expected)
        finite = (parts * 0.0 == 0.0).all(dim=0)
        size = parts[0].abs_() if len(parts) == 1 else torch.hypot(*parts)
        size.masked_fill_(~finite, 0.0)
    else:
        size = _integral_size(expected)
    measures = torch.zeros(len(expected), 9, dtype=torch.float64, device=expected.device)
    measures[:, 7] = size.square_().sum(dim=-1)
    return measures


def wrong_elements(expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    """A mask of the elements that `measure_rows` counts as wrong."""
    compared = _compared(expected, actual)
    return _wrong(compared, compared[-1].square().sum(dim=-1), tolerance)


def _wrong(compared: _Compared, sizes: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    """`sizes`: the sum of each row's squared sizes."""
    same, finite, difference, size = compared
    if tolerance.relative_to_scale:
        # 0 where float64 cannot hold the squares: no scale excuses any.
        mean = sizes / _count(finite).clamp_(min=1)
        limit = torch.maximum(size, mean.sqrt_().nan_to_num_(posinf=0.0).unsqueeze(-1)).mul_(tolerance.rtol)
        if tolerance.element_rtol:
            limit = torch.maximum(limit, size * tolerance.element_rtol)
    else:
        limit = size * tolerance.rtol
    close = difference <= limit.add_(tolerance.atol)
    return close.logical_and_(finite).logical_or_(same).logical_not_()


_Compared = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""For each element: equal, both finite, |actual - expected|, and |expected| (0 where one is not finite).

The last two are float64. The difference is NaN or infinite where one side is not finite.
"""


def _compared(expected: torch.Tensor, actual: torch.Tensor) -> _Compared:
    numeric = expected.dtype.is_floating_point or expected.dtype.is_complex
    return (_floating if numeric else _integral)(expected, actual)


def _floating(expected: torch.Tensor, actual: torch.Tensor) -> _Compared:
    want, got = _parts(expected), _parts(actual)
    same = (want == got).logical_or_(want.isnan().logical_and_(got.isnan()))
    finite = (want * 0.0) == (got * 0.0)  # NaN * 0 and inf * 0 are NaN: fewer passes than isfinite.
    got.sub_(want)
    if want.shape[0] == 1:
        same, finite, difference, size = same[0], finite[0], got[0].abs_(), want[0].abs_()
    else:
        same, finite, difference, size = same.all(dim=0), finite.all(dim=0), torch.hypot(*got), torch.hypot(*want)
    return same, finite, difference, size.masked_fill_(~finite, 0.0)


def _parts(tensor: torch.Tensor) -> torch.Tensor:
    """Float64 with a leading dimension: 1 of real elements, 2 of complex ones; always a copy."""
    if tensor.is_complex():
        return torch.stack([tensor.real.to(torch.float64), tensor.imag.to(torch.float64)])
    return tensor.to(torch.float64, copy=True, memory_format=torch.contiguous_format).unsqueeze(0)


def _integral(expected: torch.Tensor, actual: torch.Tensor) -> _Compared:
    want, got = _int64(expected), _int64(actual)
    difference = _unsigned(torch.maximum(want, got).sub_(torch.minimum(want, got)))
    return want == got, torch.ones_like(want, dtype=torch.bool), difference, _integral_size(expected)


def _integral_size(expected: torch.Tensor) -> torch.Tensor:
    if expected.dtype is torch.uint64:
        return _unsigned(expected.view(torch.int64))
    return expected.to(torch.float64).abs_()


def _unsigned(tensor: torch.Tensor) -> torch.Tensor:
    """The float64 of int64 bits read as unsigned: the gap of two int64 may need all 64 bits, and wraps below zero."""
    return tensor.to(torch.float64).add_((tensor < 0).to(torch.float64), alpha=2.0**64)


def _int64(tensor: torch.Tensor) -> torch.Tensor:
    """Integers in the same order, uint64 shifted down by 2**63."""
    if tensor.dtype is torch.uint64:
        return tensor.view(torch.int64) ^ torch.iinfo(torch.int64).min
    return tensor.to(torch.int64)


def _count(mask: torch.Tensor) -> torch.Tensor:
    """The number of true elements in each row. Sums bytes, because a CPU sum of bools first converts each to int64."""
    return mask.view(torch.int8).sum(dim=-1, dtype=torch.int32)
