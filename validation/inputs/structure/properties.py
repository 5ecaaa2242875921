"""Properties of one tensor that a kernel may rely on, once every drawn set has them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import torch

from validation.compare.bitwise import blocks

SETS = 3
"""Number of sets to seek structure in: two are needed at least, three exclude most chances."""
PIECE = 1 << 24
"""Maximum elements that are converted to a wider dtype at once (64 MiB of float32)."""
CORNER = 8
"""Maximum rows along each other dimension in a first look, which refutes most properties at once."""
MOST_SORTED = 1 << 26
"""Maximum elements that are sorted or permuted, at eight bytes an index; torch sorts at most 2^31 - 1.

A larger tensor whose range has room for so many values counts as unique.
"""
BY_CHANCE = 1e-6
"""Maximum probability with which random rows of all sets have this property too."""
LEAST_MISSING = 1.0
"""Minimum count of numbers that as many random ones would lack: three sets of those lack none with e^-3 at most."""
FEWEST_ZEROS = 1 / 64
"""Minimum share of zeros that are no chance: of pruned weights, padded rows, a dropout."""
PROBES, PROBE_ERROR = 4, {torch.float64: 1e-6, torch.float32: 1e-3}
"""Random vectors on which a matrix is tested for orthogonality, and the allowed relative error of their length."""
ROUNDING = 1e-5
"""Minimum relative tolerance of sums and norms in float32: a sum of 100,000 terms is off by this much."""
INTEGERS = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8})
FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})


class Kind(StrEnum):
    """The text of a member describes the input in the result."""

    WHOLE = "whole numbers"
    SUM = "sum of a row"
    NORM = "norm of a row"
    ABSOLUTE_SUM = "absolute sum of a row"
    LARGEST = "largest magnitude of a row"
    LOG_SUM = "logarithm of the sum of exponentials of a row"
    ZEROS = "zeros"
    SYMMETRIC = "symmetric"
    ANTISYMMETRIC = "antisymmetric"
    ORTHOGONAL = "orthonormal"
    ASCENDING = "ascending rows"
    DESCENDING = "descending rows"
    UNIQUE = "unique values"
    UNIQUE_IN_ROWS = "values unique in each row"
    BLOCKS = "equal in aligned blocks"
    COVERING = "each of its numbers somewhere"


ORDERS = {Kind.NORM: 2.0, Kind.ABSOLUTE_SUM: 1.0, Kind.LARGEST: math.inf}
"""Kinds of norms, and their orders."""
OF_ROWS = frozenset({Kind.SUM, Kind.LOG_SUM, *ORDERS})
"""Kinds of one value that all rows share."""


@dataclass(frozen=True)
class Property:
    """A property, and where it needs them the dimension (negative) of its rows and the value that all of them share.

    Rows of a `width` above 1 lie in that many last dimensions: a filter, an image, or all of the tensor. Those of a
    `group` are so many neighbours in the last dimension, such as a head.

    The value of BLOCKS is their length: such as the tokens of one expert, padded to a tile. That of COVERING is how
    many numbers there are: such as those of segments of which none is empty.
    """

    kind: Kind
    dimension: int = -1
    value: float = 0.0
    width: int = 1
    group: int = 0

    def __str__(self) -> str:
        if self.kind in OF_ROWS:
            along = f"along dimension {self.dimension}" if self.width == 1 else f"over the last {self.width} dimensions"
            along += f" in groups of {self.group}" if self.group else ""
            return f"{self.kind.removesuffix(' of a row')} of {self.value:.6g} {along}"
        if self.kind is Kind.BLOCKS:
            return f"{self.kind} of {self.value:.0f}"
        return self.kind.value

    def rows(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor with these rows in its last dimension: a view, if it is contiguous."""
        if self.group:
            return tensor.reshape(*tensor.shape[:-1], -1, self.group)
        return tensor.flatten(-self.width) if self.width > 1 else tensor.movedim(self.dimension, -1)

    def implies(self, other: Property) -> bool:
        """Whether its groups are parts of the other's rows, which therefore have the other property."""
        are_parts = self.group > 0 and (not other.group or other.group % self.group == 0)
        return are_parts and self != other and (self.kind, -1, 1) == (other.kind, other.dimension, other.width)


def properties_of(tensor: torch.Tensor) -> list[Property]:
    # A corner of a single row is all of it.
    return [one for one in _candidates(tensor) if 1 < one.width == tensor.dim() or holds(one, tensor)]


def holds(one: Property, tensor: torch.Tensor) -> bool:
    """Whether the tensor has the property."""
    match one.kind:
        case Kind.WHOLE:
            return tensor.dtype in INTEGERS or all(
                bool((rows == rows.round()).all()) for (rows,) in row_blocks([tensor])
            )
        case Kind.ZEROS:
            others = sum(int(rows.count_nonzero()) for (rows,) in row_blocks([tensor]))
            return others <= (1 - FEWEST_ZEROS) * tensor.numel()
        case Kind.SYMMETRIC | Kind.ANTISYMMETRIC:
            return _mirrored(tensor, 1 if one.kind is Kind.SYMMETRIC else -1)
        case Kind.ORTHOGONAL:
            return _is_orthogonal(tensor)
        case Kind.ASCENDING:
            return all(bool((block[..., 1:] >= block[..., :-1]).all()) for (block,) in row_blocks([tensor]))
        case Kind.DESCENDING:
            return all(bool((block[..., 1:] <= block[..., :-1]).all()) for (block,) in row_blocks([tensor]))
        case Kind.UNIQUE | Kind.UNIQUE_IN_ROWS:
            rows = tensor.reshape(1, -1) if one.kind is Kind.UNIQUE else tensor
            return all(_is_unique(block) for (block,) in row_blocks([rows]))
        case Kind.BLOCKS:
            return _block_length(tensor) % int(one.value) == 0
        case Kind.COVERING:
            return _covered(tensor) == one.value
        case _:
            return rows_share(one, one.rows(tensor))


def row_blocks(tensors: Sequence[torch.Tensor]) -> Iterator[tuple[torch.Tensor, ...]]:
    """Cuts tensors with the same leading dimensions into views of whole rows, of at most PIECE elements if they can."""
    return blocks(tensors, PIECE, whole_rows=True)


def corner(tensor: torch.Tensor) -> torch.Tensor:
    """The first few rows, in full."""
    return tensor[tuple(slice(0, CORNER) for _ in tensor.shape[:-1])]


def row_sums(rows: torch.Tensor, kind: Kind) -> torch.Tensor:
    """The number that this kind gives each row, such as its sum or norm, as float64 or int64."""
    if not rows.is_floating_point():
        return rows.sum(dim=-1, dtype=torch.int64)
    wide = torch.float64 if rows.dtype is torch.float64 else torch.float32
    if kind is Kind.LOG_SUM:
        return rows.to(wide).logsumexp(dim=-1).double()
    if kind is Kind.SUM:
        return rows.sum(dim=-1, dtype=wide).double()
    norms: torch.Tensor = torch.linalg.vector_norm(rows, ORDERS[kind], dim=-1, dtype=wide)
    return norms.double()


def _candidates(tensor: torch.Tensor) -> Iterator[Property]:
    if tensor.dim() == 0 or tensor.numel() < 2:
        return
    is_whole = Property(Kind.WHOLE)
    whole = tensor.dtype in INTEGERS or (holds(is_whole, corner(tensor)) and holds(is_whole, tensor))
    if whole:
        yield is_whole
    dimensions = [dimension for dimension in range(-tensor.dim(), 0) if tensor.shape[dimension] > 1]
    shared = [one for dimension in dimensions for one in _shared_by_rows(tensor, dimension, whole=whole)]
    if not (shared or whole):
        widths = [width for width in range(2, tensor.dim() + 1) if tensor.shape[-width] > 1]
        shared = [one for width in widths for one in _shared_by_rows(tensor, -1, width, whole=whole)]
    yield from shared
    if not whole:
        yield from _shared_by_groups(tensor, shared)
        yield Property(Kind.ZEROS)
    kinds = [Kind.ASCENDING, Kind.DESCENDING]
    if tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2]:
        kinds += [Kind.SYMMETRIC, Kind.ANTISYMMETRIC]
    if whole:
        kinds += [Kind.UNIQUE, *([Kind.UNIQUE_IN_ROWS] if tensor.dim() > 1 else [])]
        yield from _of_whole_numbers(tensor)
    for kind in kinds if tensor.shape[-1] > 1 else []:
        square = kind in (Kind.SYMMETRIC, Kind.ANTISYMMETRIC)
        if holds(Property(kind), tensor[..., :CORNER, :CORNER] if square else corner(tensor)):
            yield Property(kind)


def _shared_by_groups(tensor: torch.Tensor, shared: Sequence[Property]) -> Iterator[Property]:
    """Properties of equal parts of the last dimension's rows: a row's heads of one norm give it a norm too."""
    length, few = tensor.shape[-1], corner(tensor)
    for one in shared:
        if one.kind not in (Kind.SUM, *ORDERS) or (one.dimension, one.width) != (-1, 1):
            continue
        for group in range(2, length // 2 + 1):
            if length % group:
                continue
            # A sum grows with the row, a norm with the root of its length, and a largest element not.
            power = 1 / ORDERS.get(one.kind, 1.0)
            part = replace(one, value=one.value * (group / length) ** power, group=group)
            if rows_share(part, part.rows(few)) and not _by_chance(part, tensor, part.rows(few)):
                yield part


def _of_whole_numbers(tensor: torch.Tensor) -> Iterator[Property]:
    # Blocks of other sets may be shorter: in this one, neighbours may be equal by chance.
    longest = _block_length(corner(tensor))
    yield from (Property(Kind.BLOCKS, value=size) for size in range(2, longest + 1) if longest % size == 0)
    if tensor.dim() > 1:  # As many of each number, such as tokens of each expert.
        yield from _shared_by_rows(tensor, -1, tensor.dim(), whole=True)
    if count := _covered(tensor):
        yield Property(Kind.COVERING, value=count)


def _shared_by_rows(tensor: torch.Tensor, dimension: int, width: int = 1, *, whole: bool) -> Iterator[Property]:
    few = corner(Property(Kind.SUM, dimension, width=width).rows(tensor))
    own = float(row_sums(few, Kind.SUM).reshape(-1)[0])
    if whole:
        yield Property(Kind.SUM, dimension, own, width)
        return
    log_sums = [Kind.LOG_SUM] if bool(few.amax() <= row_tolerance(few.dtype)) else []
    for kind in (Kind.SUM, *log_sums, *ORDERS):
        if kind in ORDERS:
            values = [float(row_sums(few, kind).reshape(-1)[0])]
        else:
            values = [0.0] if kind is Kind.LOG_SUM else [0.0, 1.0, own]
        properties = [Property(kind, dimension, value, width) for value in values]
        is_single = kind in ORDERS and few.numel() == few.shape[-1]
        one = properties[0] if is_single else next((one for one in properties if rows_share(one, few)), None)
        if one is None or (kind in ORDERS and not one.value) or _by_chance(one, tensor, few):
            continue
        yield one
        if kind is Kind.NORM and width == 1 and dimension >= -2 and tensor.dim() > 1:
            yield Property(Kind.ORTHOGONAL)


def rows_share(one: Property, rows: torch.Tensor) -> bool:
    """Whether all rows have the property's value, but for rounding in the tensor's dtype."""
    for (block,) in row_blocks([rows]):
        sums = row_sums(block, one.kind)
        off = (sums - one.value).abs()
        if not block.is_floating_point():
            if bool(off.any()):
                return False
            continue
        # A sum of zero is small beside what cancels in it; a logarithm is as far off as its sum's relative error.
        size = 1.0 if one.kind is Kind.LOG_SUM else abs(one.value) or row_sums(block, Kind.ABSOLUTE_SUM)
        if not bool((off <= row_tolerance(block.dtype) * size).all()):
            return False
    return True


def row_tolerance(dtype: torch.dtype) -> float:
    """Relative tolerance of a row's sum or norm: the row may have been divided by a rounded one."""
    return max(torch.finfo(dtype).eps, ROUNDING)


def _by_chance(one: Property, tensor: torch.Tensor, rows: torch.Tensor) -> bool:
    """Whether rows of random numbers would share a value too, in all sets and at the tolerance of the dtype."""
    if (one.kind is Kind.SUM and one.value == 1) or one.kind is Kind.LOG_SUM:
        return False
    length, tolerance = rows.shape[-1], row_tolerance(tensor.dtype)
    # A sum or a norm varies by a share of about 1/sqrt(2 length) or more, a largest element by a tenth or more.
    within = 10 * tolerance if one.kind is Kind.LARGEST else math.erf(tolerance * math.sqrt(length))
    others = SETS * tensor.numel() // length - 1
    return others * math.log(min(max(within, 1e-300), 1.0)) > math.log(BY_CHANCE)


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
        difference = (rows.float() - sign * columns.float()).abs().amax()
        if not bool(difference <= 8 * torch.finfo(tensor.dtype).eps * rows.float().abs().amax()):
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


def _block_length(tensor: torch.Tensor) -> int:
    """Maximum length of aligned blocks of the last dimension in each of which all elements of a row are equal."""
    length: int = tensor.shape[-1]
    for (rows,) in row_blocks([tensor]) if length > 1 else ():
        changes = (rows[..., 1:] != rows[..., :-1]).reshape(-1, rows.shape[-1] - 1).any(dim=0).nonzero()[:, 0] + 1
        while len(changes := changes[changes % length != 0]):
            length = math.gcd(length, int(changes[0]))
    return length


def _covered(tensor: torch.Tensor) -> int:
    """How many numbers there are from the smallest to the largest, if each occurs, and not by chance; else 0."""
    low, high = (int(end) for end in tensor.aminmax())
    count, size = high - low + 1, tensor.numel()
    if not 1 < count <= size <= MOST_SORTED or count * math.exp(-size / count) < LEAST_MISSING:
        return 0
    present = torch.zeros(count, dtype=torch.bool, device=tensor.device)
    present[tensor.reshape(-1).long() - low] = True
    return count if bool(present.all()) else 0


def _is_unique(rows: torch.Tensor) -> bool:
    """Whether no row holds a value twice."""
    low, high = rows.aminmax()
    if float(high) - float(low) + 1 < rows.shape[-1]:
        return False
    return rows.numel() > MOST_SORTED or not bool((rows.sort(dim=-1).values.diff(dim=-1) == 0).any())
