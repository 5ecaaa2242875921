"""Launch geometry in a contract: numbers, or expressions of the contract's scalar arguments."""

from __future__ import annotations

import math
import re
from functools import cached_property
from typing import Any

from marshmallow import ValidationError, post_load

from api.schemas.fields import Anything, LenientSchema, WholeNumber, abbreviate, whole_number
from domain import expression
from domain.contract import Dimension, IOContract
from domain.expression import MAX_DIMENSION, ExpressionError
from domain.kernel import JITTED, KernelType

AXES = ("x", "y", "z")
MAX_GRID = (MAX_DIMENSION, 65_535, 65_535)
MAX_BLOCK = (1024, 1024, 64)
MAX_BLOCK_THREADS = 1024
MAX_SHARED_MEM = 228 << 10
MAX_STAGES = 64
WARPS = (1, 2, 4, 8, 16, 32)

_EXPRESSION = {"type": "string", "description": "An expression such as cdiv(n, BLOCK_SIZE)."}
_DIMENSION = {"oneOf": [{"type": "integer", "minimum": 1}, _EXPRESSION]}
_GEOMETRY = {
    "oneOf": [
        {"type": "object", "properties": dict.fromkeys(AXES, _DIMENSION)},
        {"type": "array", "items": _DIMENSION, "minItems": 1, "maxItems": 3},
        {"type": "integer", "minimum": 1},
        _EXPRESSION,
        {"type": "null"},
    ]
}


class LaunchSchema(LenientSchema):
    """How the kernel is launched; the backend's default replaces what is absent."""

    grid = Anything(allow_none=True, metadata=_GEOMETRY)
    block = Anything(allow_none=True, metadata=_GEOMETRY)
    shared_mem = Anything(
        allow_none=True,
        metadata={
            "description": "Dynamic shared memory in bytes.",
            "oneOf": [{"type": "integer", "minimum": 0, "maximum": MAX_SHARED_MEM}, _EXPRESSION, {"type": "null"}],
        },
    )
    num_warps = WholeNumber(1, 32, allow_none=True)
    num_stages = WholeNumber(0, MAX_STAGES, allow_none=True)

    @post_load
    def _geometry(self, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        errors: dict[str, Any] = {}
        for name, read in (("grid", _dimensions), ("block", _dimensions), ("shared_mem", _dimension)):
            if data.get(name) is not None:
                try:
                    data[name] = read(data[name])
                except ValidationError as error:
                    errors[name] = error.messages
        if data.get("num_warps") not in (None, *WARPS):
            errors["num_warps"] = [f"must be one of {', '.join(map(str, WARPS))}, not {data['num_warps']}"]
        if errors:
            raise ValidationError(errors)
        return data


def _dimensions(wire: Any) -> dict[str | int, Dimension] | list[Dimension] | Dimension:
    """`{x, y, z}`, a list of one to three, or one dimension alone; each keeps its form."""
    steps: dict[str | int, Any]
    match wire:
        case dict():
            steps = {axis: wire[axis] for axis in AXES if wire.get(axis) is not None}
        case list() if 1 <= len(wire) <= 3:
            steps = dict(enumerate(wire))
        case list():
            raise ValidationError(f"must have one to three entries, not {len(wire)}")
        case _:
            return _dimension(wire)
    errors: dict[str | int, Any] = {}
    for step, value in steps.items():
        try:
            steps[step] = _dimension(value)
        except ValidationError as error:
            errors[step] = error.messages
    if errors:
        raise ValidationError(errors)
    return steps if isinstance(wire, dict) else list(steps.values())


def _dimension(value: Any) -> Dimension:
    if isinstance(value, (dict, list)):
        raise ValidationError(f"must be a whole number or an expression, not {abbreviate(value)}")
    if not isinstance(value, str):
        return whole_number(value)
    try:
        return whole_number(value)
    except ValidationError:
        pass
    try:
        expression.parse(value)
    except ExpressionError as error:
        raise ValidationError(f"{error}") from error
    return value


def check_launch(io: IOContract, wire: dict[str, Any], kernel_type: KernelType, source: str) -> None:
    """Checks every dimension that the scalar arguments determine against the limits of a device.

    Raises ValidationError with paths below `wire`, the launch as it was sent. A Triton grid may also use names that
    only its autotuner knows, so any word of the source is left to the launch.
    """
    scale = _Scale(io, kernel_type, source)
    errors: dict[str, Any] = {}
    for name, dimensions, caps in (("grid", io.launch.grid, MAX_GRID), ("block", io.launch.block, MAX_BLOCK)):
        checked = zip(AXES if isinstance(wire.get(name), dict) else range(3), dimensions or (), caps, strict=False)
        if wrong := {step: problem for step, value, cap in checked if (problem := scale.error(value, 1, cap))}:
            errors[name] = wrong if isinstance(wire[name], (dict, list)) else wrong[0]
    if "block" not in errors and (threads := scale.known_product(io.launch.block or ())) > MAX_BLOCK_THREADS:
        errors["block"] = [f"has {threads} threads; a block has at most {MAX_BLOCK_THREADS}"]
    if io.launch.shared_mem is not None and (problem := scale.error(io.launch.shared_mem, 0, MAX_SHARED_MEM)):
        errors["shared_mem"] = problem
    if errors:
        raise ValidationError(errors)


class _Scale:
    """Evaluates the dimensions of one launch with its contract's scalar arguments."""

    def __init__(self, io: IOContract, kernel_type: KernelType, source: str) -> None:
        self._io = io
        self._scalars = io.scalars()
        self._may_wait = kernel_type in JITTED
        self._source = source

    @cached_property
    def _words(self) -> frozenset[str]:
        """The words of the source, which is long and therefore scanned once for all dimensions."""
        return frozenset(re.findall(r"\w+", self._source))

    def error(self, value: Dimension, low: int, high: int) -> list[str] | None:
        """The error of a dimension, None when it is valid."""
        try:
            size = self._size(value)
        except ExpressionError as error:
            return [str(error)]
        if size is None or low <= size <= high:
            return None
        came_to = "" if isinstance(value, int) else f" (which is what {value!r} comes to)"
        return [f"must be between {low} and {high}, not {size}{came_to}"]

    def known_product(self, dimensions: tuple[Dimension, ...]) -> int:
        """The product of the dimensions whose value is known. It skips those that Triton's autotuner sets."""
        return math.prod(size for size in map(self._size, dimensions) if size is not None)

    def _size(self, value: Dimension) -> int | None:
        """None for a dimension that Triton's autotuner sets; raises ExpressionError for an invalid value."""
        if isinstance(value, int):
            return value
        names = expression.names(value)
        unknown = sorted(names - set(self._scalars))
        if unknown and self._may_wait and all(name in self._words for name in unknown):
            return None
        for name in names - set(unknown):
            if len({a.value for a in self._io.args if a.name == name and not a.is_tensor}) > 1:
                raise ExpressionError(f"{value!r} names {name}, which is the name of several arguments; rename one")
        return expression.dimension(value, self._scalars)
