"""The IO contract of a kernel: its arguments, their content, and its launch.

The wire form is the original service's. Our additions (expressions in the grid, `shared_mem`, `randint`, `strides`,
more dtypes) are optional, so that every old body keeps its meaning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Self

from domain.dtype import ITEM_BYTES
from domain.wire import Wire

Dimension = int | str
"""A launch dimension: a number, or an expression of the scalar arguments such as `cdiv(n, BLOCK_SIZE)`."""

INDEX_KINDS = ("lengths", "offsets", "segments", "columns", "distinct")
"""The `init.kind`s of whole numbers that belong together; `of` names the argument with the lengths or offsets."""

FOLLOWING_KINDS = INDEX_KINDS[:-1]
"""The kinds that read `of`; others ignore it."""

NONE = "none"
"""The type of an argument that is None in Python and a null pointer in CUDA."""


@dataclass(frozen=True)
class TensorInit(Wire):
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


@dataclass(frozen=True)
class TensorData(Wire):
    """Inline content: base64 of raw C-order bytes, optionally zlib-compressed. Takes precedence over `init`."""

    data_b64: str
    dtype: str = "float32"
    shape: tuple[int, ...] = ()
    compress: str = "none"


@dataclass(frozen=True)
class TensorSpec(Wire):
    """Shape, dtype and content of one tensor. `strides` are in elements; None means C-contiguous."""

    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    strides: tuple[int, ...] | None = None
    init: TensorInit | None = None
    data: TensorData | None = None

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Self:
        data = wire.get("data")
        # The original takes shape and dtype from the inline data, not from the spec beside it.
        return super().from_wire(wire if data is None else wire | {name: data.get(name) for name in ("shape", "dtype")})


@dataclass(frozen=True)
class Argument(Wire):
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

    def to_wire(self) -> dict[str, Any]:
        # A kernel's digest depends on it.
        return {name: value for name, value in super().to_wire().items() if name != "is_constant" or value}


@dataclass(frozen=True)
class Launch(Wire):
    """Launch geometry. None stands for the backend's default; `shared_mem` is dynamic shared memory in bytes."""

    grid: tuple[Dimension, Dimension, Dimension] | None = None
    block: tuple[Dimension, Dimension, Dimension] | None = None
    shared_mem: Dimension | None = None
    num_warps: int | None = None
    num_stages: int | None = None

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Self:
        return super().from_wire(wire | {name: _dimensions(wire.get(name)) for name in ("grid", "block")})


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
class IOContract(Wire):
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
