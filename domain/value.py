"""Values that cross between processes: a strict, size-capped tree, never pickle.

Leaves are None, bool, int, float, str and tensors; nodes are tuple, list and dict with string keys. A tensor crosses as
a `TensorRef`: the place of its bytes in a shared arena, and their layout. Among constructor arguments, a dtype crosses
by its name, and an `Unserializable` stands for any other object.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from domain.dtype import ITEM_BYTES

Leaf = TypeVar("Leaf")

MAX_DEPTH = 16
MAX_NODES = 65_536
MAX_TEXT = 65_536
MAX_WORDS = 128
MAX_RANK = 32
MAX_BYTES = 1 << 40


class CodecError(ValueError):
    """The tree contains something that does not cross, or exceeds a cap."""


@dataclass(frozen=True)
class TensorRef:
    """A tensor's bytes in an arena: byte offset, and strides in elements as torch has them."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def span(self) -> int:
        """Bytes from the first element to the end of the last, gaps included."""
        if 0 in self.shape:
            return 0
        reach = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return (reach + 1) * ITEM_BYTES[self.dtype]

    def at(self, offset: int) -> TensorRef:
        return TensorRef(self.dtype, self.shape, self.strides, offset)

    def times(self, count: int, step: int) -> TensorRef:
        """`count` such tensors as one, `step` bytes apart, a multiple of the element size."""
        return TensorRef(self.dtype, (count, *self.shape), (step // ITEM_BYTES[self.dtype], *self.strides), self.offset)


@dataclass(frozen=True)
class DtypeName:
    """A dtype by its name in a contract."""

    name: str


@dataclass(frozen=True)
class Unserializable:
    """Stands for an object that does not cross, and describes it."""

    words: str


Value = (
    None
    | bool
    | int
    | float
    | str
    | TensorRef
    | DtypeName
    | Unserializable
    | tuple["Value", ...]
    | list["Value"]
    | dict[str, "Value"]
)


def encode(value: Any) -> Any:
    """The JSON form of a value; raises CodecError for what does not cross."""
    match value:
        case None | bool() | str():
            return value
        case int():
            if not -(2**63) <= value < 2**64:
                raise CodecError("an integer crosses when it fits in 64 bits")
            return value
        case float():
            return value if math.isfinite(value) else {"$": "float", "text": repr(value)}
        case tuple() | TensorRef() | DtypeName() | Unserializable():
            return _tag(value)
        case list():
            return [encode(item) for item in value]
        case dict():
            if not all(isinstance(key, str) for key in value):
                raise CodecError("only dicts with string keys cross")
            return {"$": "dict", "items": [[key, encode(item)] for key, item in value.items()]}
    raise CodecError(
        f"an object of type {type(value).__name__} does not cross; tensors, numbers, strings and their tuples, lists, "
        "dicts do"
    )


def _tag(value: tuple[Any, ...] | TensorRef | DtypeName | Unserializable) -> dict[str, Any]:
    match value:
        case TensorRef():
            return {
                "$": "tensor",
                "dtype": value.dtype,
                "shape": list(value.shape),
                "strides": list(value.strides),
                "offset": value.offset,
            }
        case DtypeName():
            return {"$": "dtype", "name": value.name}
        case Unserializable():
            return {"$": "unserializable", "words": value.words}
    if _is_named(value):
        raise CodecError(
            f"a named tuple ({type(value).__name__}) would arrive as a plain one; give its fields as a dict, or each "
            "as an argument of its own"
        )
    return {"$": "tuple", "items": [encode(item) for item in value]}


def decode(wire: Any, copies: int = 1) -> Value:
    """Parses an untrusted JSON form; raises CodecError for anything but what `encode` writes.

    With `copies`, all copies together may have no more nodes than one value.
    """
    budget = [MAX_NODES // max(copies, 1)]
    return _decode(wire, MAX_DEPTH, budget)


def _decode(wire: Any, depth: int, budget: list[int]) -> Value:
    budget[0] -= 1
    if depth < 0 or budget[0] < 0:
        raise CodecError(f"a value has at most {MAX_NODES} nodes in all its copies, {MAX_DEPTH} deep")
    match wire:
        case None | bool() | float():
            return wire
        case int() if -(2**63) <= wire < 2**64:
            return wire
        case str() if len(wire) <= MAX_TEXT:
            return wire
        case list():
            return [_decode(item, depth - 1, budget) for item in wire]
        case {"$": str()}:
            return _tagged(wire, depth, budget)
    raise CodecError("not a value: an integer over 64 bits, a string over the cap, or of no type that crosses")


def _tagged(wire: dict[str, Any], depth: int, budget: list[int]) -> Value:
    match wire:
        case {"$": "tuple", "items": list(items)}:
            return tuple(_decode(item, depth - 1, budget) for item in items)
        case {"$": "dict", "items": list(items)}:
            return {_key(item): _decode(item[1], depth - 1, budget) for item in items}
        case {"$": "float", "text": "inf" | "-inf" | "nan" as text}:
            return float(text)
        case {"$": "tensor"}:
            return _tensor(wire)
        case {"$": "dtype", "name": str(name)} if name in ITEM_BYTES:
            return DtypeName(name)
        case {"$": "unserializable", "words": str(words)}:
            return Unserializable(words[:MAX_WORDS])
    raise CodecError("not a value")


def _key(item: Any) -> str:
    if not (isinstance(item, list) and len(item) == 2 and isinstance(item[0], str) and len(item[0]) <= MAX_TEXT):
        raise CodecError("a dict crosses as [key, value] pairs with string keys")
    return item[0]


def _tensor(wire: dict[str, Any]) -> TensorRef:
    dtype = wire.get("dtype")
    shape, strides = _sizes(wire.get("shape")), _sizes(wire.get("strides"))
    offset = wire.get("offset")
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES or len(shape) != len(strides):
        raise CodecError(f"not a tensor: dtype {dtype!r}, rank {len(shape)} and {len(strides)}")
    if type(offset) is not int or not 0 <= offset <= MAX_BYTES:
        raise CodecError("tensor offset out of range")
    ref = TensorRef(dtype, shape, strides, offset)
    # Counts dimensions beside one of size 0 too: torch multiplies them all.
    if max(ref.span, math.prod(size for size in shape if size)) > MAX_BYTES:
        raise CodecError(f"a tensor spans at most {MAX_BYTES} bytes, and has no more elements")
    return ref


def _sizes(wire: Any) -> tuple[int, ...]:
    if not isinstance(wire, list) or len(wire) > MAX_RANK:
        raise CodecError(f"a tensor has at most {MAX_RANK} dimensions")
    if not all(type(size) is int and 0 <= size <= MAX_BYTES for size in wire):
        raise CodecError("tensor sizes are non-negative integers")
    return tuple(wire)


def leaves(value: Any, kind: type[Leaf]) -> list[Leaf]:
    """Every leaf of that type, depth first, dicts in insertion order."""
    collected: list[Leaf] = []
    replace(value, kind, collected.append)
    return collected


def replace(value: Any, kind: type[Leaf], change: Callable[[Leaf], Any], depth: int = MAX_DEPTH) -> Any:
    """The same tree with every leaf of that type changed, depth first; raises CodecError beyond MAX_DEPTH."""
    if isinstance(value, kind):
        return change(value)
    if depth < 0:
        raise CodecError(f"a value is at most {MAX_DEPTH} deep, and must not contain itself")
    match value:
        case tuple():
            changed = (replace(item, kind, change, depth - 1) for item in value)
            return type(value)._make(changed) if _is_named(value) else tuple(changed)  # type: ignore[attr-defined]
        case list():
            return [replace(item, kind, change, depth - 1) for item in value]
        case dict():
            return {key: replace(item, kind, change, depth - 1) for key, item in value.items()}
    return value


def _is_named(value: tuple[Any, ...]) -> bool:
    return hasattr(value, "_fields")


def nodes(value: Any) -> int:
    """Number of nodes that `decode` counts in its wire form."""
    match value:
        case tuple() | list():
            return 1 + sum(map(nodes, value))
        case dict():
            return 1 + sum(map(nodes, value.values()))
    return 1


def filled(value: Any, kind: type[Leaf], leaves: Iterable[Any]) -> Any:
    """The same tree with `leaves` in place of its leaves of that type, in order."""
    values_left = iter(leaves)
    return replace(value, kind, lambda _: next(values_left))
