"""What a tensor's values look like: which of them may be changed at all is a guess from these, and a cautious one."""

from __future__ import annotations

import math
from enum import StrEnum

import torch

from sandbox.protocol.arena import stored_shape

FEWEST = 16
"""Elements below which values do not tell what they stand for."""
SAMPLE, DISTINCT = 256, 0.75
MIXED = 0.1
"""Of either sign at least that share: a normal has a half."""
UNBOUNDED = 2.0
"""Largest magnitude over the rms: 1.73 for a uniform distribution around zero, under 2 hardly ever for a normal one."""
ROWS = 16
UNIFORM, SURELY = 256, 5.0
"""Values that tell a uniform distribution between 0 and 1, by its first two moments, and their standard errors."""


class Nature(StrEnum):
    """What a tensor's values look like; the words are the answer's."""

    PLAIN = "plain random numbers"
    UNDETERMINED = "an output: its content before the call means nothing"
    NOT_FLOATING = "not a floating dtype of 16 bits or more"
    NOT_FINITE = "holds NaNs or infinities"
    NOT_DRAWN = "its content is given, not drawn"
    DECLARED_RANGE = "its contract declares a range"
    SMALL = "too few values to tell what they are"
    UNIFORM = "looks like torch.rand: maybe probabilities or lengths, so tried with small values among them alone"
    ONE_SIGN = "hardly any values of one sign: maybe variances, probabilities or lengths"
    BOUNDED = "bounded: maybe coordinates or angles"
    DISCRETE = "few distinct values: maybe a mask or levels"
    SORTED = "sorted: maybe boundaries"
    UNIT_ROWS = "rows of one norm: maybe normalised on purpose"
    SYMMETRIC = "symmetric: maybe positive definite on purpose"

    @property
    def continuous(self) -> bool:
        """Whether a relative change of rounding size leaves it what it is."""
        drawn = self in (Nature.PLAIN, Nature.UNIFORM, Nature.DECLARED_RANGE)
        return drawn or self in (Nature.SMALL, Nature.ONE_SIGN, Nature.BOUNDED)


def nature(tensor: torch.Tensor, *, declared_normal: bool = False) -> Nature:
    """What the values look like; with `declared_normal` (a contract's randn) bounds and order are not guessed."""
    if not tensor.is_floating_point() or tensor.element_size() < 2:
        return Nature.NOT_FLOATING
    if tensor.numel() < FEWEST:
        return Nature.SMALL
    stored = tensor.as_strided(stored_shape(tensor), tensor.stride())
    if stored.numel() < FEWEST:
        return Nature.SMALL
    if not bool(stored.isfinite().all()):
        return Nature.NOT_FINITE
    flat = stored.reshape(-1)
    sample = flat[:: max(1, flat.numel() // SAMPLE)][:SAMPLE]
    if 1 + int(sample.sort().values.diff().ne(0).sum()) < DISTINCT * sample.numel():
        return Nature.DISCRETE
    if _is_uniform(flat) and _structure(stored) is Nature.PLAIN:
        return Nature.UNIFORM
    if not MIXED <= float((flat < 0).sum()) / flat.numel() <= 1 - MIXED:
        return Nature.ONE_SIGN
    if declared_normal:
        return Nature.PLAIN
    wide = torch.float64 if flat.dtype is torch.float64 else torch.float32
    rms = float(torch.linalg.vector_norm(flat, dtype=wide)) / flat.numel() ** 0.5
    if float(flat.abs().amax()) < UNBOUNDED * rms:
        return Nature.BOUNDED
    return _structure(stored)


def _is_uniform(flat: torch.Tensor) -> bool:
    """Whether these are as torch.rand draws them; single values of other things may be, but hardly their moments."""
    if flat.numel() < UNIFORM or float(flat.amin()) < 0 or float(flat.amax()) > 1:  # Which it is rounded to.
        return False
    mean = float(flat.mean(dtype=torch.float64))
    mean_square = float(torch.linalg.vector_norm(flat, dtype=torch.float64)) ** 2 / flat.numel()
    errors = SURELY / math.sqrt(flat.numel())
    # A uniform distribution's values have a mean of 1/2 and a variance of 1/12, their squares 1/3 and 4/45.
    return abs(mean - 1 / 2) < errors * math.sqrt(1 / 12) and abs(mean_square - 1 / 3) < errors * math.sqrt(4 / 45)


def _structure(tensor: torch.Tensor) -> Nature:
    """Of a tensor whose single values look like plain random numbers."""
    rows = tensor.reshape(-1, tensor.shape[-1])[:ROWS].to(torch.float64)
    steps = rows.diff(dim=-1)
    if steps.numel() and bool((steps >= 0).all() or (steps <= 0).all()):
        return Nature.SORTED
    norms = torch.linalg.vector_norm(rows, dim=-1)
    if len(norms) > 1 and float(norms.amax() - norms.amin()) <= 2 * torch.finfo(tensor.dtype).eps * float(norms.amax()):
        return Nature.UNIT_ROWS
    if tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2] > 1 and torch.equal(tensor, tensor.mT):
        return Nature.SYMMETRIC
    return Nature.PLAIN
