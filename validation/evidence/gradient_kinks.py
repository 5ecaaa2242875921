"""Decides whether gradients differ only where rounding chooses a side of a kink, such as relu's at zero.

A forward pass hardly changes there, but its gradient jumps: for one flipped element of a hidden layer, a whole row of
an input's gradient and of a weight's. The reference shows how far: it runs in float64, on the inputs and on inputs
moved by about a rounding step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from domain.gradients import GradientPlan, forward_output_count
from validation.compare.comparison import compare
from validation.compare.tolerance import Tolerance, effective_tolerance
from validation.evidence.perturbation_bound import MOST_ELEMENTS, around

Outputs = list[torch.Tensor]
FACTOR = 2.0
"""An element may be off by this times what moved inputs change there, or on average along one of its dimensions. The
candidate may flip elements that no move flipped, and not those that one did."""
MOST_SHARE = 0.25
"""Maximum error of a gradient's root mean square, relative to it, however far moved inputs change it."""


@dataclass
class Differences:
    """The largest differences of excused calls from the reference's outputs, by output: of the norm, and of an element.

    Later calls may differ by twice that: both sides may be off (docs/adr/0036).
    """

    calls: int = 0
    norms: list[float] = field(default_factory=list)
    elements: list[float] = field(default_factory=list)

    def widen(self, expected: Outputs, actual: Outputs) -> None:
        self.calls += 1
        norms, elements = _differences(expected, actual)
        self.norms = list(map(max, norms, self.norms or norms))
        self.elements = list(map(max, elements, self.elements or elements))

    def cover(self, expected: Outputs, actual: Outputs) -> bool:
        """Whether a later call is within twice of these."""
        pairs = zip(_differences(expected, actual), (self.norms, self.elements), strict=True)
        return bool(self.norms) and all(
            one <= FACTOR * most for now, before in pairs for one, most in zip(now, before, strict=True)
        )


def first_gradient(expected: Outputs, actual: Outputs, plan: GradientPlan | None, tolerance: Tolerance) -> int | None:
    """The index of a call's first gradient; None for a call without any, and where an output before it is wrong."""
    outputs = forward_output_count(plan, len(expected))
    alone = outputs < len(expected) and compare(expected[:outputs], actual[:outputs], tolerance).passed
    return outputs if alone else None


def explained_by_kinks(actual: Outputs, runs: Iterable[Outputs], tolerance: Tolerance) -> bool:
    """Whether gradients are as near to the first run as kinks let the other runs be.

    `runs` are the reference's gradients in float64: on the inputs, then on moved inputs. Each element has to be within
    tolerance plus FACTOR times what a move changes, and each gradient's norm within what the largest move changes.
    """
    exact: Outputs | None = None
    noise, norms = list[torch.Tensor](), list[float]()
    for run in runs:
        if exact is None:
            exact = [_wide(tensor) for tensor in run]
            if _shapes(actual) != _shapes(exact) or sum(tensor.numel() for tensor in exact) > MOST_ELEMENTS:
                return False
            continue
        if _shapes(run) != _shapes(exact):
            return False
        changes = [(_wide(moved) - true).abs() for moved, true in zip(run, exact, strict=True)]
        noise = list(map(torch.maximum, changes, noise or changes))
        norms = list(map(max, map(_rms, changes), norms or [0.0] * len(changes)))
    return bool(noise) and all(
        _explained(got, true, change, norm, effective_tolerance(got.dtype, tolerance))
        for got, true, change, norm in zip(actual, exact or [], noise, norms, strict=True)
    )


def _explained(actual: torch.Tensor, exact: torch.Tensor, noise: torch.Tensor, norm: float, limit: Tolerance) -> bool:
    error, sizes, scale = (_wide(actual) - exact).abs(), exact.abs(), _rms(exact)
    relative = sizes.clamp(min=scale) if limit.relative_to_scale else sizes
    allowed = limit.atol + limit.rtol * relative + FACTOR * around(noise)
    # A comparison with NaN is false.
    within_norm = _rms(error) <= limit.atol + limit.rtol * scale + min(norm, MOST_SHARE * scale)
    return within_norm and bool((error <= allowed).all())


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _shapes(outputs: Outputs) -> list[torch.Size]:
    return [tensor.shape for tensor in outputs]


def _differences(expected: Outputs, actual: Outputs) -> tuple[list[float], list[float]]:
    differences = [(_wide(got) - _wide(want)).abs() for want, got in zip(expected, actual, strict=True)]
    return list(map(_rms, differences)), [float(one.max()) if one.numel() else 0.0 for one in differences]


def _rms(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor)) / math.sqrt(max(tensor.numel(), 1))
