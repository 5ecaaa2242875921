"""Evaluates a CUDA launch's sizes from the contract's expressions."""

from __future__ import annotations

from dataclasses import dataclass

from domain.contract import Dimension, IOContract
from domain.expression import ExpressionError, dimension
from domain.fault import KernelFault
from domain.result import Status

DEFAULT_GRID: tuple[Dimension, Dimension, Dimension] = (1, 1, 1)
DEFAULT_BLOCK: tuple[Dimension, Dimension, Dimension] = (256, 1, 1)


@dataclass(frozen=True)
class Geometry:
    """One launch's sizes; `shared` in bytes of dynamic shared memory."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    def __str__(self) -> str:
        return f"grid {self.grid}, block {self.block}, {self.shared} bytes of dynamic shared memory"


def default_shared_bytes(block_threads: int) -> int:
    """Bytes of dynamic shared memory for a kernel that declares `extern __shared__` under a contract without a size.

    Eight bytes a thread hold one double or one 64-bit index each, which is what such kernels commonly reduce over.
    """
    return max(1024, block_threads * 8)


def geometry(io: IOContract, scalars: dict[str, int | float], uses_dynamic_shared: bool) -> Geometry:
    """The launch sizes for these scalar arguments; raises KernelFault for an expression that has no valid value."""
    launch = io.launch

    def sizes(what: str, dimensions: tuple[Dimension, Dimension, Dimension]) -> tuple[int, int, int]:
        x, y, z = (_size(f"launch.{what}.{axis}", size, scalars) for axis, size in zip("xyz", dimensions, strict=True))
        if min(x, y, z) < 1:
            raise KernelFault(
                Status.RUNTIME_ERROR, f"launch.{what} is {(x, y, z)}: every dimension is at least 1", compiled=True
            )
        return x, y, z

    grid = sizes("grid", launch.grid or DEFAULT_GRID)
    block = sizes("block", launch.block or DEFAULT_BLOCK)
    if launch.shared_mem is not None:
        return Geometry(grid, block, _size("launch.shared_mem", launch.shared_mem, scalars))
    return Geometry(grid, block, default_shared_bytes(block[0] * block[1] * block[2]) if uses_dynamic_shared else 0)


def _size(what: str, expression: Dimension, scalars: dict[str, int | float]) -> int:
    try:
        return dimension(expression, scalars)
    except ExpressionError as error:
        raise KernelFault(Status.CONTRACT_MISMATCH, f"{what}: {error}", compiled=True) from error
