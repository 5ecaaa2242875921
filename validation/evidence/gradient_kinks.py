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
        """Adds an excused call."""
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


def explained_by_kinks(actual: Outputs, runs: Iterable[Outputs], tolerance: Tolerance) -> bool:
    """Whether gradients are as near to the first run as kinks let the other runs be.

    `runs` are the reference's gradients in float64: on the inputs, then on moved inputs. Each element has to be within
    tolerance plus FACTOR times what a move changes, and each gradient's error in norm within what the largest move changes.
    """
    exact, *moved = runs
    if not moved or sum(tensor.numel() for tensor in exact) > MOST_ELEMENTS:
        return False
    for run in (actual, *moved):
        if [tensor.shape for tensor in run] != [tensor.shape for tensor in exact]:
            return False
    return all(
        _explained(got, true, [run[index] for run in moved], effective_tolerance(got.dtype, tolerance))
        for index, (got, true) in enumerate(zip(actual, exact, strict=True))
    )


def _explained(actual: torch.Tensor, exact: torch.Tensor, moved: list[torch.Tensor], tolerance: Tolerance) -> bool:
    kind = torch.complex128 if exact.is_complex() else torch.float64
    true, error = exact.to(kind), (actual.to(kind) - exact.to(kind)).abs()
    changes = [(run.to(kind) - true).abs() for run in moved]
    noise = torch.stack(changes).amax(0)
    scale = _rms(true)
    relative = true.abs().clamp(min=scale) if tolerance.relative_to_scale else true.abs()
    allowed = tolerance.atol + tolerance.rtol * relative + FACTOR * around(noise)
    norm = tolerance.atol + tolerance.rtol * scale + min(max(map(_rms, changes)), MOST_SHARE * scale)
    # A comparison with NaN is false.
    return bool((error <= allowed).all()) and _rms(error) <= norm


def _differences(expected: Outputs, actual: Outputs) -> tuple[list[float], list[float]]:
    apart = [
        (got.to(torch.complex128) - want.to(torch.complex128)).abs() for want, got in zip(expected, actual, strict=True)
    ]
    return list(map(_rms, apart)), [float(one.max()) if one.numel() else 0.0 for one in apart]


def _rms(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor)) / math.sqrt(max(tensor.numel(), 1))
