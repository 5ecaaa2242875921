"""Draws whole numbers that belong together, as ragged, sparse, paged and expert kernels take them (docs/api.md).

Each function draws several sets at once, [sets, ...], as int64. Launches are few, because the referee draws while it
holds the device.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from backends.dtypes import torch_dtype
from domain.contract import INDEX_KINDS, TensorInit
from validation.inputs.random_content import seeded

EMPTY = 1 / 8
"""Share of the lengths that are the shortest, because kernels often fail at empty parts."""


def index_content(
    init: TensorInit, shape: tuple[int, ...], name: str, seed: int, device: str, parts: torch.Tensor | None
) -> torch.Tensor:
    """Index numbers of several sets, `shape` [sets, ...]; `parts` are the lengths of `init.of`, [sets, n].

    Raises ValueError for a kind that these numbers do not have.
    """
    options: dict[str, Any] = {"generator": seeded(seed, device), "device": device}
    values = _drawn(init, shape, options, None if parts is None else parts.to(torch.int64))
    if values.shape != shape:
        raise ValueError(f"{init.kind} of {init.of!r} have the shape {list(values.shape[1:])}, not {list(shape[1:])}")
    return values.to(torch_dtype(name))


def _drawn(
    init: TensorInit, shape: tuple[int, ...], options: dict[str, Any], parts: torch.Tensor | None
) -> torch.Tensor:
    sets, last = shape[0], shape[-1]
    match init.kind:
        case "lengths":
            return _lengths(init, sets, last, options) if parts is None else parts
        case "offsets":
            lengths = _lengths(init, sets, last - 1, options) if parts is None else parts
            return torch.nn.functional.pad(lengths.cumsum(-1), (1, 0))[:, :last]
        case "segments" | "columns" if parts is not None:
            starts = parts.cumsum(-1).sub_(parts)
            places = torch.arange(last, device=starts.device).expand(sets, last).contiguous()
            segments = torch.searchsorted(starts, places, right=True).sub_(1)
            if init.kind == "segments":
                return segments
            lengths, ranks = parts.gather(-1, segments), places - starts.gather(-1, segments)
            return _ascending(int(init.high or 0), lengths, segments, ranks, options)
        case "distinct":
            return _distinct(last if init.high is None else int(init.high), shape, options)
    raise ValueError(f"{init.kind} is no rule with the given `of`; known are {', '.join(INDEX_KINDS)}")


def _lengths(init: TensorInit, sets: int, count: int, options: dict[str, Any]) -> torch.Tensor:
    """[sets, count]: from `low` to `high`, with the sum `total` if there is one."""
    low = int(init.low or 0)
    if init.total is None:
        high = 100 if init.high is None else int(init.high)
        lengths = torch.randint(low, high + 1, (sets, count), **options)
        return torch.where(_chosen(lengths, options), low, lengths)
    spare = init.total - low * count
    if count == 0:
        return torch.zeros(sets, 0, dtype=torch.int64, device=options["device"])
    cuts = torch.randint(0, spare + 1, (sets, count - 1), **options).sort(-1).values
    cuts = torch.nn.functional.pad(cuts, (1, 0))
    # A cut at the place of the one before makes an empty part.
    cuts[:, 1:] = torch.where(_chosen(cuts[:, 1:], options), cuts[:, :-1], cuts[:, 1:])
    lengths = torch.diff(cuts, append=torch.full_like(cuts[:, :1], spare))
    if init.high is not None:
        # The excess of lengths over the limit goes to the others, in proportion to their room.
        excess = (lengths - (int(init.high) - low)).clamp_(min=0)
        lengths -= excess
        room = (int(init.high) - low - lengths).cumsum(-1)
        filled = room * excess.sum(-1, keepdim=True) // room[:, -1:].clamp(min=1)
        lengths += torch.diff(filled, prepend=torch.zeros_like(filled[:, :1]))
    return lengths + low


def _chosen(like: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
    return torch.rand(like.shape, **options) < EMPTY


def _distinct(high: int, shape: tuple[int, ...], options: dict[str, Any]) -> torch.Tensor:
    """Different numbers below `high` along the last dimension, in random order."""
    rows, count = math.prod(shape[:-1]), shape[-1]
    ranks = torch.arange(count, device=options["device"]).expand(rows, count)
    ascending = _ascending(high, torch.full_like(ranks, count), torch.zeros_like(ranks), ranks, options)
    order = torch.rand((rows, count), **options).argsort(-1)
    return ascending.gather(-1, order).view(shape)


def _ascending(
    high: int, lengths: torch.Tensor, segments: torch.Tensor, ranks: torch.Tensor, options: dict[str, Any]
) -> torch.Tensor:
    """Draws numbers with repetitions from a range shorter by the segment's length, sorts them and adds their ranks."""
    shares = torch.rand(lengths.shape, dtype=torch.float64, **options)
    numbers = shares.mul_(high - lengths + 1).floor_().to(torch.int64)
    # Segments are ascending, so sorting leaves each number in its own.
    offsets = segments * (high + 1)
    return (numbers + offsets).sort(-1).values.sub_(offsets).add_(ranks)
