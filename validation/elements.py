"""Rows of two tensors, element by element, boiled down to a few numbers without waiting for the device."""

from __future__ import annotations

import sys

import torch

from validation.tolerance import Tolerance


def measures(expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance, tight: Tolerance) -> torch.Tensor:
    """Nine float64 numbers, [rows, 9], about each row of two [rows, n] tensors, on their device.

    How many elements are wrong, are wrong with a NaN or infinity on a side, are wrong under `tight`; the largest
    absolute and the largest relative difference; the sums of the absolute difference, of its square and of the square
    of expected; the position of the first wrong element (0 when none is).
    """
    same, finite, difference, size = compared = _compared(expected, actual)
    wrong = _wrong(compared, tolerance)
    strictly_wrong = ~(same | (finite & (difference <= tight.atol + tight.rtol * size)))
    difference = torch.where(finite, difference, 0.0).clamp_(max=sys.float_info.max)
    relative = torch.where(finite & (size > 0), difference / size, 0.0).clamp_(max=sys.float_info.max)
    size = torch.where(finite, size, 0.0)
    numbers = (
        wrong.sum(dim=-1),
        (wrong & ~finite).sum(dim=-1),
        strictly_wrong.sum(dim=-1),
        difference.amax(dim=-1),
        relative.amax(dim=-1),
        difference.sum(dim=-1),
        difference.square_().sum(dim=-1),
        size.square_().sum(dim=-1),
        wrong.to(torch.uint8).argmax(dim=-1),
    )
    return torch.stack([number.to(torch.float64) for number in numbers], dim=-1)


def wrong_elements(expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    """Which elements of the rows `measures` counts as wrong: a mask of their shape."""
    return _wrong(_compared(expected, actual), tolerance)


def _wrong(compared: _Compared, tolerance: Tolerance) -> torch.Tensor:
    same, finite, difference, size = compared
    scale = torch.maximum(size, _root_mean_square(size, finite)) if tolerance.of_scale else size
    return ~(same | (finite & (difference <= tolerance.atol + tolerance.rtol * scale)))


def _root_mean_square(size: torch.Tensor, finite: torch.Tensor) -> torch.Tensor:
    """Of each row's finite elements, as a column; 0 where float64 cannot hold their squares: no scale excuses any."""
    squares = torch.where(finite, size, 0.0).square_().sum(dim=-1, keepdim=True)
    return squares.div_(finite.sum(dim=-1, keepdim=True).clamp(min=1)).sqrt_().nan_to_num_(posinf=0.0)


_Compared = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Equal, both finite, |actual - expected| and |expected|, of each element; the differences as float64."""


def _compared(expected: torch.Tensor, actual: torch.Tensor) -> _Compared:
    numeric = expected.dtype.is_floating_point or expected.dtype.is_complex
    return (_floating if numeric else _integral)(expected, actual)


def _floating(expected: torch.Tensor, actual: torch.Tensor) -> _Compared:
    want, got = _parts(expected), _parts(actual)
    same = ((want == got) | (want.isnan() & got.isnan())).all(dim=0)
    finite = (want.isfinite() & got.isfinite()).all(dim=0)
    difference = got.sub_(want)
    if want.shape[0] == 1:
        return same, finite, difference[0].abs_(), want[0].abs_()
    return same, finite, torch.hypot(*difference), torch.hypot(*want)


def _parts(tensor: torch.Tensor) -> torch.Tensor:
    """Float64 with a leading dimension: 1 of real elements, 2 of complex ones; always a copy."""
    if tensor.is_complex():
        return torch.stack([tensor.real.to(torch.float64), tensor.imag.to(torch.float64)])
    return tensor.to(torch.float64, copy=True).unsqueeze(0)


def _integral(expected: torch.Tensor, actual: torch.Tensor) -> _Compared:
    want, got = _int64(expected), _int64(actual)
    difference = _unsigned(torch.maximum(want, got).sub_(torch.minimum(want, got)))
    unsigned = expected.dtype is torch.uint64
    size = _unsigned(expected.view(torch.int64)) if unsigned else want.to(torch.float64).abs_()
    return want == got, torch.ones_like(want, dtype=torch.bool), difference, size


def _unsigned(tensor: torch.Tensor) -> torch.Tensor:
    """The float64 of int64 bits read as unsigned: the gap of two int64 may need all 64 bits, and wraps below zero."""
    return tensor.to(torch.float64).add_((tensor < 0).to(torch.float64), alpha=2.0**64)


def _int64(tensor: torch.Tensor) -> torch.Tensor:
    """Integers in the same order, uint64 shifted down by 2**63; a bool as its byte, so that poison is not true."""
    if tensor.dtype is torch.bool:
        tensor = tensor.view(torch.uint8)
    if tensor.dtype is torch.uint64:
        return tensor.view(torch.int64) ^ torch.iinfo(torch.int64).min
    return tensor.to(torch.int64)
