"""The IO contract of a kernel: its arguments, their content, and its launch.

The wire form is the original service's. Our additions (expressions in the grid, `shared_mem`, `randint`, `strides`,
more dtypes) are optional, so that every old body keeps its meaning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Self

from domain.dtype import ITEM_BYTES

Dimension = int | str
"""A launch dimension: a number, or an expression of the scalar arguments such as `cdiv(n, BLOCK_SIZE)`."""

INDEX_KINDS = ("lengths", "offsets", "segments", "columns", "distinct")
"""The `init.kind`s of whole numbers that belong together; `of` names the argument with the lengths or offsets."""

FOLLOWING_KINDS = INDEX_KINDS[:-1]
"""The kinds that read `of`; others ignore it."""

NONE = "none"
"""The type of an argument that is None in Python and a null pointer in CUDA."""


def _without_none(wire: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in wire.items() if value is not None}


@dataclass(frozen=True)
class TensorInit:
    """How a tensor's content is drawn. Parameters that the kind does not use are None."""

    kind: str = "randn"
    seed: int | None = None
    mean: float | None = None
    std: float | None = None
    low: float | None = None
    high: float | None = None
    fill_value: float | int | bool | None = None
    start: float | None = None
    step: float | None = None
    total: int | None = None
    of: str | None = None

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Self:
        present = {name: wire[name] for name in cls.__dataclass_fields__ if wire.get(name) is not None}
        return cls(**present)

    def to_wire(self) -> dict[str, Any]:
        return _without_none({name: getattr(self, name) for name in self.__dataclass_fields__})


@dataclass(frozen=True)
class TensorData:
    """Inline content: base64 of raw C-order bytes, optionally zlib-compressed. Takes precedence over `init`."""

    data_b64: str
    dtype: str = "float32"
    shape: tuple[int, ...] = ()
    compress: str = "none"

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Self:
        return cls(
            data_b64=wire["data_b64"],
            dtype=wire.get("dtype") or "float32",
            shape=tuple(wire.get("shape") or ()),
            compress=wire.get("compress") or "none",
        )

    def to_wire(self) -> dict[str, Any]:
        return {"data_b64": self.data_b64, "dtype": self.dtype, "shape": list(self.shape), "compress": self.compress}


@dataclass(frozen=True)
class TensorSpec:
    """Shape, dtype and content of one tensor. `strides` are in elements; None means C-contiguous."""

    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    strides: tuple[int, ...] | None = None
    init: TensorInit | None = None
    data: TensorData | None = None

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Self:
        init, data, strides = wire.get("init"), wire.get("data"), wire.get("strides")
        inline = TensorData.from_wire(data) if data is not None else None
        return cls(
            # The original takes shape and dtype from the inline data, not from the spec beside it.
            shape=inline.shape if inline else tuple(wire.get("shape") or ()),
            dtype=inline.dtype if inline else wire.get("dtype") or "float32",
            strides=tuple(strides) if strides is not None else None,
            init=TensorInit.from_wire(init) if init is not None else None,
            data=inline,
        )

    def to_wire(self) -> dict[str, Any]:
        return _without_none(
            {
                "shape": list(self.shape),
                "dtype": self.dtype,
                "strides": list(self.strides) if self.strides is not None else None,
                "init": self.init.to_wire() if self.init else None,
                "data": self.data.to_wire() if self.data else None,
            }
        )


@dataclass(frozen=True)
class Argument:
    """One argument, in calling order. `role` is input, output or inout.

    `is_meta` marks a Triton constexpr, `is_constant` a tensor in a CUDA source's `__constant__` variable of that name.
    """

    name: str
    type: str
    value: int | float | str | bool | None = None
    tensor_spec: TensorSpec | None = None
    role: str = "input"
    is_meta: bool = False
    is_constant: bool = False

    @property
    def is_tensor(self) -> bool:
        return self.type == "tensor"

    @property
    def nbytes(self) -> int:
        """Bytes of a contiguous tensor; 0 for anything else."""
        spec = self.tensor_spec
        return math.prod(spec.shape) * ITEM_BYTES[spec.dtype] if spec is not None else 0

    @property
    def is_output(self) -> bool:
        return self.is_tensor and self.role in ("output", "inout")

    @property
    def is_blank(self) -> bool:
        """Whether it is an output without initial content, so that its values before the call mean nothing."""
        spec = self.tensor_spec
        return self.role == "output" and spec is not None and spec.init is None and spec.data is None

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Self:
        spec = wire.get("tensor_spec")
        return cls(
            name=wire["name"],
            type=wire["type"],
            value=_coerced(wire["type"], wire.get("value")),
            tensor_spec=TensorSpec.from_wire(spec) if spec is not None else None,
            role=wire.get("role") or "input",
            is_meta=bool(wire.get("is_meta", False)),
            is_constant=bool(wire.get("is_constant", False)),
        )

    def to_wire(self) -> dict[str, Any]:
        return _without_none(
            {
                "name": self.name,
                "type": self.type,
                "value": self.value,
                "tensor_spec": self.tensor_spec.to_wire() if self.tensor_spec else None,
                "role": self.role,
                "is_meta": self.is_meta,
                "is_constant": self.is_constant or None,
            }
        )


def _coerced(kind: str, value: Any) -> Any:
    # {"type": "float", "value": 2} is a float: JSON writers drop the ".0".
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind == "int" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


@dataclass(frozen=True)
class Launch:
    """Launch geometry. None stands for the backend's default; `shared_mem` is dynamic shared memory in bytes."""

    grid: tuple[Dimension, Dimension, Dimension] | None = None
    block: tuple[Dimension, Dimension, Dimension] | None = None
    shared_mem: Dimension | None = None
    num_warps: int | None = None
    num_stages: int | None = None

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Self:
        return cls(
            grid=_dimensions(wire.get("grid")),
            block=_dimensions(wire.get("block")),
            shared_mem=wire.get("shared_mem"),
            num_warps=wire.get("num_warps"),
            num_stages=wire.get("num_stages"),
        )

    def to_wire(self) -> dict[str, Any]:
        return _without_none(
            {
                "grid": list(self.grid) if self.grid else None,
                "block": list(self.block) if self.block else None,
                "shared_mem": self.shared_mem,
                "num_warps": self.num_warps,
                "num_stages": self.num_stages,
            }
        )


def _dimensions(wire: Any) -> tuple[Dimension, Dimension, Dimension] | None:
    """`{x, y, z}`, a list of one to three, or one dimension alone."""
    if wire is None:
        return None
    if isinstance(wire, dict):
        sizes = [wire.get("x"), wire.get("y"), wire.get("z")]
    elif isinstance(wire, (list, tuple)):
        sizes = [*wire, None, None, None][:3]
    else:
        sizes = [wire, None, None]
    x, y, z = (1 if dimension is None else dimension for dimension in sizes)
    return x, y, z


@dataclass(frozen=True)
class IOContract:
    """All arguments in calling order, and the launch."""

    args: tuple[Argument, ...] = ()
    launch: Launch = field(default_factory=Launch)

    @property
    def outputs(self) -> tuple[int, ...]:
        """Indexes of the output arguments: those marked output or inout, else every tensor."""
        marked = tuple(i for i, argument in enumerate(self.args) if argument.is_output)
        return marked or tuple(i for i, argument in enumerate(self.args) if argument.is_tensor)

    @property
    def constants(self) -> list[Argument]:
        """The arguments that a CUDA kernel reads from `__constant__` variables."""
        return [argument for argument in self.args if argument.is_constant]

    def scalars(self) -> dict[str, int | float]:
        """The numeric arguments by name, for launch expressions."""
        return {a.name: a.value for a in self.args if isinstance(a.value, (int, float)) and not a.is_tensor}

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Self:
        return cls(
            args=tuple(Argument.from_wire(argument) for argument in wire.get("args") or ()),
            launch=Launch.from_wire(wire.get("launch") or {}),
        )

    def to_wire(self) -> dict[str, Any]:
        return {"args": [argument.to_wire() for argument in self.args], "launch": self.launch.to_wire()}
