"""Properties of one tensor that a kernel may rely on, once every drawn set has them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch

PIECE = 1 << 24
"""Maximum elements that are converted to a wider dtype at once (64 MiB of float32)."""
CORNER = 8
"""Maximum rows along each other dimension in a first look, which refutes most properties at once."""
MOST_SORTED = 1 << 26
"""Maximum elements that are sorted or permuted, at eight bytes an index; torch sorts at most 2^31 - 1.

A larger tensor whose range has room for so many values counts as unique.
"""
BY_CHANCE = 1e-6
"""Maximum probability with which random rows have this property too."""
PROBES, PROBE_ERROR = 4, {torch.float64: 1e-6, torch.float32: 1e-3}
"""Random vectors on which a matrix is tested for orthogonality, and the allowed relative error of their length."""
ROUNDING = 1e-5
"""Minimum relative tolerance of sums and norms in float32: a sum of 100,000 terms is off by this much."""
INTEGERS = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8})
FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})


class Kind(StrEnum):
    """The text of a member describes the input in the result."""

    WHOLE = "whole numbers"
    SUM = "sum along one dimension"
    NORM = "norm along one dimension"
    SYMMETRIC = "symmetric"
    ANTISYMMETRIC = "antisymmetric"
    ORTHOGONAL = "orthonormal"
    ASCENDING = "ascending rows"
    DESCENDING = "descending rows"
    UNIQUE = "unique values"
    UNIQUE_IN_ROWS = "values unique in each row"


@dataclass(frozen=True)
class Property:
    """A property, and where it needs them the dimension (negative) and the value that all rows along it share."""

    kind: Kind
    dimension: int = -1
    value: float = 0.0

    def __str__(self) -> str:
        if self.kind in (Kind.SUM, Kind.NORM):
            return f"{self.kind.split()[0]} of {self.value:.6g} along dimension {self.dimension}"
        return self.kind.value


def properties_of(tensor: torch.Tensor) -> list[Property]:
    """All properties that the tensor has."""
    return [one for one in _candidates(tensor) if holds(one, tensor)]


def holds(one: Property, tensor: torch.Tensor) -> bool:
    """Whether the tensor has the property."""
    match one.kind:
        case Kind.WHOLE:
            return tensor.dtype in INTEGERS or all(
                bool((rows == rows.round()).all()) for (rows,) in row_blocks([tensor])
            )
        case Kind.SUM | Kind.NORM:
            return rows_share(one, tensor.movedim(one.dimension, -1))
        case Kind.SYMMETRIC:
            return _mirrored(tensor, 1)
        case Kind.ANTISYMMETRIC:
            return _mirrored(tensor, -1)
        case Kind.ORTHOGONAL:
            return _is_orthogonal(tensor)
        case Kind.ASCENDING:
            return all(bool((block[..., 1:] >= block[..., :-1]).all()) for (block,) in row_blocks([tensor]))
        case Kind.DESCENDING:
            return all(bool((block[..., 1:] <= block[..., :-1]).all()) for (block,) in row_blocks([tensor]))
        case Kind.UNIQUE:
            return _is_unique(tensor.reshape(1, -1))
        case Kind.UNIQUE_IN_ROWS:
            return all(_is_unique(block) for (block,) in row_blocks([tensor]))


def row_blocks(tensors: Sequence[torch.Tensor]) -> Iterator[tuple[torch.Tensor, ...]]:
    """Cuts tensors with the same leading dimensions into views of whole rows, of at most PIECE elements if they can."""
    first = tensors[0]
    if first.numel() == 0:
        return
    if first.dim() < 2 or first.numel() <= PIECE:
        yield tuple(tensors)
    elif first.shape[0] == 1:
        yield from row_blocks([tensor[0] for tensor in tensors])
    else:
        rows = max(1, PIECE // (first.numel() // first.shape[0]))
        for parts in zip(*(torch.split(tensor, rows) for tensor in tensors), strict=True):
            yield from row_blocks(parts)


def corner(tensor: torch.Tensor) -> torch.Tensor:
    """The first few rows, in full."""
    return tensor[tuple(slice(0, CORNER) for _ in tensor.shape[:-1])]


def row_sums(rows: torch.Tensor, kind: Kind) -> torch.Tensor:
    """The sum or the norm of each row, as float64 or int64."""
    if not rows.is_floating_point():
        return rows.sum(dim=-1, dtype=torch.int64)
    wide = rows if rows.dtype is torch.float64 else rows.float()
    sums = wide.sum(dim=-1) if kind is Kind.SUM else torch.linalg.vector_norm(wide, dim=-1)
    return sums.double()


def _candidates(tensor: torch.Tensor) -> Iterator[Property]:
    """Properties that a corner of the tensor has."""
    if tensor.dim() == 0 or tensor.numel() < 2:
        return
    is_whole = Property(Kind.WHOLE)
    whole = tensor.dtype in INTEGERS or (holds(is_whole, corner(tensor)) and holds(is_whole, tensor))
    if whole:
        yield is_whole
    dimensions = [dimension for dimension in range(-tensor.dim(), 0) if tensor.shape[dimension] > 1]
    for dimension in dimensions:
        yield from _shared_by_rows(tensor, dimension, whole=whole)
    kinds = [Kind.ASCENDING, Kind.DESCENDING]
    if tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2]:
        kinds += [Kind.SYMMETRIC, Kind.ANTISYMMETRIC]
    if whole:
        kinds += [Kind.UNIQUE, *([Kind.UNIQUE_IN_ROWS] if tensor.dim() > 1 else [])]
    for kind in kinds if tensor.shape[-1] > 1 else []:
        square = kind in (Kind.SYMMETRIC, Kind.ANTISYMMETRIC)
        if holds(Property(kind), tensor[..., :CORNER, :CORNER] if square else corner(tensor)):
            yield Property(kind)


def _shared_by_rows(tensor: torch.Tensor, dimension: int, *, whole: bool) -> Iterator[Property]:
    few = corner(tensor.movedim(dimension, -1))
    if whole:
        yield Property(Kind.SUM, dimension, float(row_sums(few, Kind.SUM).reshape(-1)[0]))
        return
    for value in (0.0, 1.0):
        if rows_share(one := Property(Kind.SUM, dimension, value), few):
            yield one
    norms = row_sums(few, Kind.NORM).reshape(-1)
    one = Property(Kind.NORM, dimension, float(norms[0]))
    if bool(norms[0] > 0) and rows_share(one, few) and not _chance_norms(tensor, dimension):
        yield one
        if dimension >= -2 and tensor.dim() > 1:
            yield Property(Kind.ORTHOGONAL)


def rows_share(one: Property, rows: torch.Tensor) -> bool:
    """Whether the sum or norm of all rows is the property's value, but for rounding in the tensor's dtype."""
    for (block,) in row_blocks([rows]):
        sums = row_sums(block, one.kind)
        off = (sums - one.value).abs()
        if not block.is_floating_point():
            if bool(off.any()):
                return False
            continue
        # A sum of zero is small beside what cancels in it.
        size = abs(one.value) or row_sums(block.abs(), Kind.SUM)
        if not bool((off <= row_tolerance(block.dtype) * size).all()):
            return False
    return True


def row_tolerance(dtype: torch.dtype) -> float:
    """Relative tolerance of a row's sum or norm: the row may have been divided by a rounded one."""
    return max(torch.finfo(dtype).eps, ROUNDING)


def _chance_norms(tensor: torch.Tensor, dimension: int) -> bool:
    """Whether rows of normal random numbers would have one norm too, at the tolerance of the dtype."""
    length, rows = tensor.shape[dimension], tensor.numel() // tensor.shape[dimension]
    if rows < 2:
        return tensor.dtype is not torch.float64
    within = math.erf(row_tolerance(tensor.dtype) * math.sqrt(length))  # A norm varies by a share of 1/sqrt(2 length).
    return rows * math.log(max(within, 1e-300)) > math.log(BY_CHANCE)


def _mirrored(tensor: torch.Tensor, sign: int) -> bool:
    """Whether square matrices equal their transposes (times `sign`), but for the rounding of a product."""
    size = tensor.shape[-1]
    step = max(1, PIECE // max(1, tensor.numel() // size))
    for start in range(0, size, step):
        rows, columns = tensor[..., start : start + step, :], tensor.mT[..., start : start + step, :]
        if torch.equal(rows, columns if sign > 0 else -columns):
            continue
        if not tensor.is_floating_point():
            return False
        apart = (rows.float() - sign * columns.float()).abs().amax()
        if not bool(apart <= 8 * torch.finfo(tensor.dtype).eps * rows.float().abs().amax()):
            return False
    return True


def _is_orthogonal(tensor: torch.Tensor) -> bool:
    """Whether the columns (of a wide matrix the rows) are orthonormal, by what they do to random vectors."""
    wide = tensor if tensor.dtype is torch.float64 else tensor.float()
    matrix = wide.mT if tensor.shape[-1] > tensor.shape[-2] else wide
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(matrix.shape[-1], PROBES, generator=generator, dtype=matrix.dtype).to(matrix.device)
    off = torch.linalg.vector_norm(matrix.mT @ (matrix @ vectors) - vectors) / torch.linalg.vector_norm(vectors)
    batches = math.sqrt(max(1, math.prod(tensor.shape[:-2])))
    return bool(off <= batches * PROBE_ERROR.get(tensor.dtype, 4 * torch.finfo(tensor.dtype).eps))


def _is_unique(rows: torch.Tensor) -> bool:
    """Whether no row holds a value twice."""
    low, high = rows.aminmax()
    if float(high) - float(low) + 1 < rows.shape[-1]:
        return False
    return rows.numel() > MOST_SORTED or not bool((rows.sort(dim=-1).values.diff(dim=-1) == 0).any())
