"""Inputs that were computed from another input: the short list of functions that is tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from validation.inputs.structure.properties import FLOATS, INTEGERS, Kind, Property, corner, row_blocks, rows_share

MOST_TENSORS = 16
"""Maximum number of tensors that are tried in pairs."""
COPIES = ("equal to", "negated", "transposed")
"""Functions that are their own inverse: of two such inputs the earlier is the source."""
OF_WHOLE_ROWS = {"softmax of": Kind.SUM, "shares of the sum of": Kind.SUM, "normalised": Kind.NORM}
"""Functions of which a row's beginning says nothing, and what of the row is then one."""
PREFIX = 64
"""Elements of a row that are compared first for all other functions."""
ROUNDINGS = 16
"""Maximum rounding errors, of the coarser dtype and relative to the largest element, between function and input."""

Function = Callable[[torch.Tensor], torch.Tensor]


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dtype in (torch.float64, *INTEGERS) else tensor.float()


def _sums_so_far(rows: torch.Tensor) -> torch.Tensor:
    return _wide(rows).cumsum(-1)


def _offsets(rows: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(_sums_so_far(rows), (1, 0))


def _softmax(rows: torch.Tensor) -> torch.Tensor:
    return torch.softmax(_wide(rows).double() if rows.dtype in INTEGERS else _wide(rows), dim=-1)


def _unit(rows: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(_wide(rows).float() if rows.dtype in INTEGERS else _wide(rows), dim=-1)


def _shares(rows: torch.Tensor) -> torch.Tensor:
    wide = _wide(rows).float() if rows.dtype in INTEGERS else _wide(rows)
    return wide / wide.sum(dim=-1, keepdim=True)


# Functions of whole rows, but for the transposition. The first one that fits is taken.
FUNCTIONS: dict[str, Function] = {
    "equal to": lambda rows: rows,
    "negated": lambda rows: -rows,
    "transposed": lambda matrix: matrix.mT,
    "positive part of": lambda rows: rows.clamp(min=0),
    "sign mask of": lambda rows: rows > 0,
    "cumulative sum of": _sums_so_far,
    "offsets from": _offsets,
    "softmax of": _softmax,
    "normalised": _unit,
    "shares of the sum of": _shares,
}


@dataclass(frozen=True)
class Relation:
    """The tensor at `target` is a function of the one at `source`."""

    target: int
    source: int
    function: str

    def compute(self, source: torch.Tensor) -> torch.Tensor:
        """The target's content for that source."""
        return FUNCTIONS[self.function](source)

    def holds(self, tensors: Sequence[torch.Tensor]) -> bool:
        source, target = tensors[self.source], tensors[self.target]
        if self.function == "transposed":
            return source.dim() > 1 and target.shape == source.mT.shape and _equal("equal to", source, target.mT)
        if target.shape[:-1] != source.shape[:-1]:
            return False
        return all(_equal(self.function, *parts) for parts in row_blocks([source, target]))


def relations_of(tensors: Sequence[torch.Tensor]) -> list[Relation]:
    """The relations of a set, at most one for each target; no source is itself a target."""
    result: list[Relation] = []
    usable = [number for number, tensor in enumerate(tensors[:MOST_TENSORS]) if _may_relate(tensor)]
    for target in usable:
        sources = {one.source for one in result}
        if target in sources:
            continue
        targets = {one.target for one in result}
        for source in [number for number in usable if number != target and number not in targets]:
            fitting = (Relation(target, source, name) for name in FUNCTIONS)
            relation = next((one for one in fitting if _fits(one, tensors)), None)
            if relation is not None:
                result.append(relation)
                break
    return result


def _fits(one: Relation, tensors: Sequence[torch.Tensor]) -> bool:
    source, target = tensors[one.source], tensors[one.target]
    if one.function in COPIES and one.source > one.target:
        return False
    if one.function == "transposed":
        return one.holds(tensors)
    if target.shape[:-1] != source.shape[:-1]:
        return False
    first, expected = corner(source), corner(target)
    kind = OF_WHOLE_ROWS.get(one.function)
    if kind is None:
        longer = target.shape[-1] - source.shape[-1]
        first, expected = first[..., :PREFIX], expected[..., : PREFIX + longer]
    elif not (target.is_floating_point() and rows_share(Property(kind, -1, 1.0), expected)):
        return False
    return _equal(one.function, first, expected) and one.holds(tensors)


def _may_relate(tensor: torch.Tensor) -> bool:
    """Not of one value: such tensors equal each other by chance."""
    known = tensor.dtype in FLOATS or tensor.dtype in INTEGERS or tensor.dtype is torch.bool
    if not known or tensor.dim() == 0 or tensor.numel() < 2:
        return False
    first = tensor[(slice(0, 1),) * tensor.dim()]
    return not bool((tensor == first).all())


def _equal(function: str, source: torch.Tensor, target: torch.Tensor) -> bool:
    if source.dtype is torch.bool and function != "equal to":
        return False
    expected = FUNCTIONS[function](source)
    if expected.shape != target.shape:
        return False
    if not (target.is_floating_point() and expected.is_floating_point()):
        alike = expected.dtype is torch.bool or expected.is_floating_point() == target.is_floating_point()
        return alike and torch.equal(expected.to(target.dtype), target)
    wide = torch.promote_types(torch.promote_types(expected.dtype, target.dtype), torch.float32)
    coarsest = max(torch.finfo(one.dtype).eps for one in (source, target) if one.is_floating_point())
    largest = float(target.abs().amax())
    return bool(((expected.to(wide) - target.to(wide)).abs() <= ROUNDINGS * coarsest * largest).all())
