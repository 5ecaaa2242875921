"""Draws the values of each `init.kind` in the tensor's own dtype, as the original service drew them.

docs/api.md has the table of kinds (`init`). Bytes of packed float4_e2m1fn_x2 are drawn from all 256.

uint64 has 0 to 1000000 under `randn`, as int64's upper half. Complex `randn` has variance std² over both parts; complex
`uniform` and `randint` draw each part independently.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

from backends.dtypes import torch_dtype
from domain.contract import TensorInit
from domain.dtype import CODES, COMPLEX, INTEGERS, ITEM_BYTES, PACKED, SCALE_RANGE, code_of

RANDOM_KINDS = frozenset({"randn", "uniform", "randint"})
FIXED_KINDS = frozenset({"zeros", "ones", "full", "arange"})
WIDE_INTEGERS = {"int64": (-1_000_000, 1_000_000), "uint64": (0, 1_000_000)}
DRAWN_INTEGERS = ("int8", "int16", "int32", "int64", "uint8")
"""Dtypes that torch.randint can draw."""
PIECE = 1 << 26
"""Maximum elements that take temporaries of eight bytes at once (512 MiB)."""
LARGEST_DRAW = 2**63 - 2
"""Maximum random integer: torch.randint takes its exclusive bound as an int64."""


@dataclass(frozen=True)
class RandomValues:
    """Random values of several sets, [sets, ...].

    `low` and `high` are the bounds that mirroring exchanges (for a normal distribution both are the mean); values stay
    below `limit`.
    """

    values: torch.Tensor
    low: float
    high: float
    limit: float = math.inf
    wide: torch.dtype | None = None
    """The dtype for arithmetic, where the values' own has none."""

    def mirror_up(self, sets: slice, seed: int) -> None:
        """Mirrors an eighth to a half of the elements into the upper half of the range, in place, in the chosen sets.

        Every value stays within the contract, but parts of the tensor now differ in their mean. A reduction over one
        part then no longer stands for the whole, and zero is no longer a good guess for the mean.
        """
        part = (torch.view_as_real(self.values)[..., 0] if self.values.is_complex() else self.values)[sets]
        total = math.prod(part.shape[1:])
        if total < 2:
            return
        flat = part.reshape(len(part), -1)
        shortest, longest = max(1, total // 8), max(1, total // 2)
        length = shortest + seed % (longest - shortest + 1)
        start = (seed >> 20) % (total - length + 1)
        stretch = flat[:, start : start + length]
        # Few launches, because the referee draws thousands of sets while it holds the device.
        for piece in torch.split(stretch, max(1, PIECE // len(flat)), dim=1):
            wide = piece if self.wide is None else piece.to(self.wide)
            self._mirror(wide)
            if wide is not piece:
                piece.copy_(wide)
        if flat.data_ptr() != part.data_ptr():
            part.copy_(flat.view(part.shape))

    def _mirror(self, stretch: torch.Tensor) -> None:
        if self.low == self.high == 0 and math.isinf(self.limit):
            stretch.abs_()
            return
        mirrored = (self.high - stretch) + self.low
        if math.isinf(self.limit):
            torch.maximum(mirrored, stretch, out=stretch)
        else:
            stretch.copy_(torch.where((mirrored > stretch) & (mirrored < self.limit), mirrored, stretch))


def random_content(
    init: TensorInit, shape: tuple[int, ...], name: str, seed: int, device: str, skewed: Iterable[tuple[slice, int]]
) -> torch.Tensor:
    """Random values of several sets, [sets, ...], from a generator of that device with that seed.

    `skewed` lists the sets to skew (`RandomValues.mirror_up`) and the seed of each. Raises ValueError for bounds that
    the dtype cannot hold.
    """
    generator = seeded(seed, device)
    if math.prod(shape) <= PIECE or not _is_drawn_wider(init, name):
        drawn = _draw(init, shape, name, generator, device)
    else:
        drawn = _draw_in_pieces(init, shape, name, generator, device)
    for sets, stretch in skewed:
        drawn.mirror_up(sets, stretch)
    values = drawn.values
    is_bits = name == "bool" or name in CODES
    return values.view(torch_dtype(name)) if is_bits else values.to(torch_dtype(name))


def seeded(seed: int, device: str) -> torch.Generator:
    return torch.Generator(device=device).manual_seed(seed)


def fixed_content(init: TensorInit, shape: tuple[int, ...], name: str, device: str) -> torch.Tensor:
    """The values of a kind that needs no seed, as a tensor that may be expanded (stride 0)."""
    if init.kind == "arange":
        return _arange(init, shape, name, device).expand(shape)
    constant = {"zeros": 0, "ones": 1, "full": 0 if init.fill_value is None else init.fill_value}[init.kind]
    if _is_integer(name):
        constant = _within(_whole("fill_value", constant), name)
    elif name == "bool":
        constant = bool(constant)
    elif name in CODES:
        code = torch.tensor(code_of(constant, name), dtype=torch.uint8, device=device)
        return code.view(torch_dtype(name)).expand(shape)
    elif math.isfinite(constant) and abs(constant) > torch.finfo(torch_dtype(name)).max:
        raise ValueError(f"fill_value {constant} does not fit {name}")
    return torch.full((), constant, dtype=torch_dtype(name), device=device).expand(shape)


def _is_drawn_wider(init: TensorInit, name: str) -> bool:
    """Whether `_draw` returns another dtype, or draws in another one, with more bytes an element."""
    if name == "bool" or name in CODES:
        return False
    integers = _is_integer(name) or init.kind == "randint"
    return name not in DRAWN_INTEGERS if integers else name.startswith("float8")


def _draw_in_pieces(
    init: TensorInit, shape: tuple[int, ...], name: str, generator: torch.Generator, device: str
) -> RandomValues:
    """As `_draw`, but in the tensor's own dtype, so that no wider copy of all of it exists."""
    values = torch.empty(shape, dtype=torch_dtype(name), device=device)
    drawn: RandomValues | None = None
    for piece in torch.split(values.view(-1), PIECE):
        drawn = _draw(init, tuple(piece.shape), name, generator, device)
        piece.copy_(drawn.values)
    assert drawn is not None
    return replace(drawn, values=values, wide=None if values.is_complex() else drawn.values.dtype)


def _draw(init: TensorInit, shape: tuple[int, ...], name: str, generator: torch.Generator, device: str) -> RandomValues:
    options: dict[str, Any] = {"generator": generator, "device": device}
    if name == "bool":
        return RandomValues(torch.randint(0, 2, shape, dtype=torch.uint8, **options), 0, 1)
    if name in CODES:
        low, high = _code_bounds(init, name)
        return RandomValues(torch.randint(low, high + 1, shape, dtype=torch.uint8, **options), low, high)
    if _is_integer(name) or init.kind == "randint":
        low, high = _integer_bounds(init, name)
        return RandomValues(_integers(low, high, shape, name, options), low, high)
    # torch has no float8 generator: draw as float32 and round.
    dtype = torch.float32 if name.startswith("float8") else torch_dtype(name)
    if init.kind == "randn":
        mean, std = _or(init.mean, 0.0), _or(init.std, 1.0)
        values = torch.randn(shape, dtype=dtype, **options)
        if (mean, std) != (0.0, 1.0):
            values.mul_(std).add_(mean)
        return RandomValues(values, mean, mean)
    bottom, top = _or(init.low, 0.0), _or(init.high, 1.0)
    values = torch.rand(shape, dtype=dtype, **options)
    parts = torch.view_as_real(values) if dtype.is_complex else values
    parts.mul_(top - bottom).add_(bottom)
    return RandomValues(values, bottom, top, limit=top)


def _code_bounds(init: TensorInit, name: str) -> tuple[int, int]:
    """Lowest and highest byte, both included."""
    if name == PACKED:
        return 0, 255
    return code_of(_or(init.low, SCALE_RANGE[0]), name), code_of(_or(init.high, SCALE_RANGE[1]), name)


def _integer_bounds(init: TensorInit, name: str) -> tuple[int, int]:
    """Lowest and highest value, both included."""
    if init.kind == "randn":
        return WIDE_INTEGERS.get(name) or _range(name)
    low, high = _whole("low", _or(init.low, 0)), _whole("high", _or(init.high, 100))
    highest = high - 1 if init.kind == "randint" else high
    if highest > LARGEST_DRAW or low < -(2**63):
        raise ValueError(f"random integers lie between -2**63 and {LARGEST_DRAW}")
    if _is_integer(name):
        _within(low, name)
        _within(highest, name)
    return low, highest


def _integers(low: int, high: int, shape: tuple[int, ...], name: str, options: dict[str, Any]) -> torch.Tensor:
    if name in COMPLEX:
        parts = torch.randint(low, high + 1, (*shape, 2), **options)
        return torch.view_as_complex(parts.to(torch_dtype(name).to_real()))
    # int64 serves for the dtypes that torch.randint cannot draw: wide unsigned and floating ones.
    dtype = torch_dtype(name) if name in DRAWN_INTEGERS else torch.int64
    return torch.randint(low, high + 1, shape, dtype=dtype, **options)


def _arange(init: TensorInit, shape: tuple[int, ...], name: str, device: str) -> torch.Tensor:
    """One row, as long as the last dimension (0-d: one element). An integer dtype truncates fractional steps."""
    count = shape[-1] if shape else 1
    start, step = _or(init.start, 0), _or(init.step, 1)
    if _is_integer(name) and count:
        for end in (start, start + step * (count - 1)):
            _within(int(end), name)
    if _is_integer(name) and start == int(start) and step == int(step):
        row = torch.arange(count, dtype=torch.int64, device=device) * _signed(int(step)) + _signed(int(start))
        row = row.view(torch.uint64) if name == "uint64" else row.to(torch_dtype(name))
    else:
        row = torch.arange(count, dtype=torch.float64, device=device) * step + start
        row = row != 0 if name == "bool" else row.to(torch_dtype(name))
    return row if shape else row.reshape(())


def _signed(value: int) -> int:
    """The int64 with the same 64 bits: integer arithmetic wraps, so uint64 content comes out exact."""
    return (value + 2**63) % 2**64 - 2**63


def _is_integer(name: str) -> bool:
    return name in INTEGERS


def _range(name: str) -> tuple[int, int]:
    size = 8 * ITEM_BYTES[name]
    return (0, 2**size - 1) if name.startswith("u") else (-(2 ** (size - 1)), 2 ** (size - 1) - 1)


def _within(value: int, name: str) -> int:
    low, high = _range(name)
    if not low <= value <= high:
        raise ValueError(f"{value} is outside {name}, which holds {low} to {high}")
    return value


def _whole(label: str, value: float) -> int:
    if value != value or value in (float("inf"), float("-inf")) or value != int(value):
        raise ValueError(f"{label} {value} is not a whole number, as an integer dtype needs")
    return int(value)


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
