"""The IO contract of a kernel: its arguments, how their values are drawn, and its launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

Scalar = bool | int | float | str
Dimension = int | str
"""A launch dimension: a number, or an expression of the scalar arguments such as `cdiv(n, BLOCK_SIZE)`."""


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _fields_in(cls: type[Any], wire: Mapping[str, Any]) -> dict[str, Any]:
    """The members of `wire` that are fields of the dataclass, without nulls: these keep the field's default."""
    return _without_none({each.name: wire.get(each.name) for each in fields(cls)})


@dataclass(frozen=True)
class TensorInit:
    """How the service draws a tensor's values: `kind` and its parameters; it ignores those that the kind lacks.

    Bounds and `total` may be expressions, as a shape's sizes. `of` names the argument that index numbers follow.
    """

    kind: str = "randn"
    seed: int | None = None
    mean: float | None = None
    std: float | None = None
    low: float | str | None = None
    high: float | str | None = None
    fill_value: float | int | bool | None = None
    start: float | None = None
    step: float | None = None
    total: int | str | None = None
    of: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that the service accepts."""
        return _without_none({each.name: getattr(self, each.name) for each in fields(self)})

    @classmethod
    def from_dict(cls, wire: Mapping[str, Any]) -> TensorInit:
        """From the wire's form; unknown keys are ignored, as the service does."""
        return cls(**_fields_in(cls, wire))


@dataclass(frozen=True)
class TensorData:
    """Inline content: base64 of the raw bytes in C order, optionally zlib-compressed."""

    data_b64: str
    dtype: str = "float32"
    shape: Sequence[int] = ()
    compress: str = "none"

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that the service accepts."""
        return {"data_b64": self.data_b64, "dtype": self.dtype, "shape": list(self.shape), "compress": self.compress}

    @classmethod
    def from_dict(cls, wire: Mapping[str, Any]) -> TensorData:
        """From the wire's form."""
        return cls(**_fields_in(cls, wire))


@dataclass(frozen=True)
class TensorSpec:
    """One tensor. `strides` are in elements, None: C-contiguous. `data` wins over `init`.

    A size or stride may be an expression of the contract's scalars, or of the symbols to which cases give values, such
    as `"2 * N"`.
    """

    shape: Sequence[int | str] = ()
    dtype: str = "float32"
    init: TensorInit | None = None
    data: TensorData | None = None
    strides: Sequence[int | str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that the service accepts."""
        wire: dict[str, Any] = {"shape": _listed(self.shape), "dtype": self.dtype}
        if self.strides is not None:
            wire["strides"] = _listed(self.strides)
        if self.init is not None:
            wire["init"] = self.init.to_dict()
        if self.data is not None:
            wire["data"] = self.data.to_dict()
        return wire

    @classmethod
    def from_dict(cls, wire: Mapping[str, Any]) -> TensorSpec:
        """From the wire's form."""
        init, data = wire.get("init"), wire.get("data")
        parts = {
            "init": None if init is None else TensorInit.from_dict(init),
            "data": None if data is None else TensorData.from_dict(data),
        }
        return cls(**{**_fields_in(cls, wire), **parts})


def _listed(sizes: Sequence[int | str]) -> list[int | str] | str:
    """A list; a text as it is, for the service to refuse, not letter by letter."""
    return sizes if isinstance(sizes, str) else list(sizes)


@dataclass(frozen=True)
class ArgSpec:
    """One argument. `type` is tensor, int, float, str, bool or none; `role` input, output or inout.

    `is_meta` marks a Triton constexpr, `is_constant` a tensor in a CUDA source's `__constant__` variable of that name.
    """

    name: str
    type: str
    value: Scalar | None = None
    tensor_spec: TensorSpec | None = None
    role: str = "input"
    is_meta: bool = False
    is_constant: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that the service accepts."""
        wire: dict[str, Any] = {"name": self.name, "type": self.type, "role": self.role}
        if self.value is not None:
            wire["value"] = self.value
        if self.tensor_spec is not None:
            wire["tensor_spec"] = self.tensor_spec.to_dict()
        if self.is_meta:
            wire["is_meta"] = True
        if self.is_constant:
            wire["is_constant"] = True
        return wire

    @classmethod
    def from_dict(cls, wire: Mapping[str, Any]) -> ArgSpec:
        """From the wire's form."""
        spec = wire.get("tensor_spec")
        return cls(**{**_fields_in(cls, wire), "tensor_spec": None if spec is None else TensorSpec.from_dict(spec)})


@dataclass(frozen=True)
class LaunchDim:
    """A grid or a block in three dimensions."""

    x: Dimension = 1
    y: Dimension = 1
    z: Dimension = 1

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that the service accepts."""
        return {"x": self.x, "y": self.y, "z": self.z}

    @classmethod
    def from_dict(cls, wire: Geometry) -> LaunchDim:
        """From `{"x", "y", "z"}`, a list of one to three, or one dimension alone; raises ValueError for another."""
        if isinstance(wire, LaunchDim):
            return wire
        if isinstance(wire, Mapping):
            return cls(**_fields_in(cls, wire))
        if isinstance(wire, (int, str)):
            return cls(wire)
        if not 1 <= len(wire) <= 3:
            raise ValueError(f"a grid or a block has one to three dimensions, not {len(wire)}: {list(wire)}")
        return cls(*wire)


Geometry = LaunchDim | Mapping[str, Dimension] | Sequence[Dimension] | Dimension
"""Any form of a grid or a block that `LaunchDim.from_dict` reads."""


@dataclass(frozen=True)
class LaunchConfig:
    """How to launch the kernel; None is the backend's default. `shared_mem` is in bytes.

    `grid` and `block` become a LaunchDim: `64`, `"cdiv(n, 256)"` and `[8, 8]` are valid too.
    """

    grid: Geometry | None = None
    block: Geometry | None = None
    num_warps: int | None = None
    num_stages: int | None = None
    shared_mem: Dimension | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a grid or a block of more than three dimensions."""
        for name in ("grid", "block"):
            geometry: Geometry | None = getattr(self, name)
            if geometry is not None:
                object.__setattr__(self, name, LaunchDim.from_dict(geometry))

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that the service accepts."""
        wire = _without_none({name: getattr(self, name) for name in ("num_warps", "num_stages", "shared_mem")})
        for name in ("grid", "block"):
            dimensions: LaunchDim | None = getattr(self, name)
            if dimensions is not None:
                wire[name] = dimensions.to_dict()
        return wire

    @classmethod
    def from_dict(cls, wire: Mapping[str, Any]) -> LaunchConfig:
        """From the wire's form."""
        return cls(**_fields_in(cls, wire))


@dataclass(frozen=True)
class IOContract:
    """All arguments in calling order, and the launch."""

    args: Sequence[ArgSpec] = field(default_factory=tuple)
    launch: LaunchConfig | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that the service accepts."""
        wire: dict[str, Any] = {"args": [arg.to_dict() for arg in self.args]}
        if self.launch is not None:
            wire["launch"] = self.launch.to_dict()
        return wire

    @classmethod
    def from_dict(cls, wire: Mapping[str, Any]) -> IOContract:
        """From the wire's form."""
        launch = wire.get("launch")
        args = tuple(ArgSpec.from_dict(arg) for arg in wire.get("args") or ())
        return cls(args, None if launch is None else LaunchConfig.from_dict(launch))
