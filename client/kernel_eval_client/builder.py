"""Functions that describe a tensor and how to draw its values, and a builder for IO contracts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernel_eval_client.contract import (
    ArgSpec,
    Dimension,
    IOContract,
    LaunchConfig,
    LaunchDim,
    Scalar,
    TensorInit,
    TensorSpec,
)


def create_tensor_spec(
    shape: Sequence[int], dtype: str = "float32", init_kind: str | None = None, seed: int | None = None, **init: Any
) -> TensorSpec:
    """A tensor of that shape. Without `init_kind`, inputs are standard normal and outputs are filled with poison."""
    drawn = TensorInit(init_kind, seed, **init) if init_kind is not None else None
    return TensorSpec(tuple(shape), dtype, drawn)


def create_randn_spec(
    shape: Sequence[int], dtype: str = "float32", seed: int | None = None, mean: float = 0.0, std: float = 1.0
) -> TensorSpec:
    """Normally distributed; integers over their whole range."""
    return create_tensor_spec(shape, dtype, "randn", seed, mean=mean, std=std)


def create_uniform_spec(
    shape: Sequence[int], dtype: str = "float32", seed: int | None = None, low: float = 0.0, high: float = 1.0
) -> TensorSpec:
    """Uniform from `low` up to `high`; of integers both ends included."""
    return create_tensor_spec(shape, dtype, "uniform", seed, low=low, high=high)


def create_zeros_spec(shape: Sequence[int], dtype: str = "float32") -> TensorSpec:
    """All zeros."""
    return create_tensor_spec(shape, dtype, "zeros")


def create_ones_spec(shape: Sequence[int], dtype: str = "float32") -> TensorSpec:
    """All ones."""
    return create_tensor_spec(shape, dtype, "ones")


def create_full_spec(shape: Sequence[int], fill_value: float, dtype: str = "float32") -> TensorSpec:
    """All one value."""
    return create_tensor_spec(shape, dtype, "full", fill_value=fill_value)


def create_arange_spec(
    shape: Sequence[int], dtype: str = "float32", start: float = 0.0, step: float = 1.0
) -> TensorSpec:
    """`start + step * i` along the last dimension."""
    return create_tensor_spec(shape, dtype, "arange", start=start, step=step)


class IOContractBuilder:
    """Arguments in the order they are added. Every method but `build` returns the builder."""

    def __init__(self) -> None:
        self._args: list[ArgSpec] = []
        self._launch: dict[str, Any] = {}

    def add_input_tensor(self, name: str, spec: TensorSpec) -> IOContractBuilder:
        """A tensor that is read."""
        return self._add(ArgSpec(name, "tensor", tensor_spec=spec))

    def add_output_tensor(self, name: str, shape: Sequence[int], dtype: str = "float32") -> IOContractBuilder:
        """A tensor that is written. The service fills it with poison first, so that an unwritten element shows."""
        return self._add(ArgSpec(name, "tensor", tensor_spec=TensorSpec(tuple(shape), dtype), role="output"))

    def add_inout_tensor(self, name: str, spec: TensorSpec) -> IOContractBuilder:
        """A tensor that is read and written."""
        return self._add(ArgSpec(name, "tensor", tensor_spec=spec, role="inout"))

    def add_scalar(self, name: str, type: str, value: Scalar) -> IOContractBuilder:
        """An int, float, str or bool, as `type` says."""
        return self._add(ArgSpec(name, type, value))

    def add_meta_param(self, name: str, value: int) -> IOContractBuilder:
        """A constexpr of a Triton kernel."""
        return self._add(ArgSpec(name, "int", value, is_meta=True))

    def add_constant(self, name: str, spec: TensorSpec) -> IOContractBuilder:
        """A tensor that a CUDA kernel reads from the `__constant__` variable of that name."""
        return self._add(ArgSpec(name, "tensor", tensor_spec=spec, is_constant=True))

    def set_launch_config(self, config: LaunchConfig) -> IOContractBuilder:
        """The whole launch at once."""
        names = ("grid", "block", "num_warps", "num_stages", "shared_mem")
        self._launch = {name: getattr(config, name) for name in names}
        return self

    def set_grid(self, x: Dimension, y: Dimension = 1, z: Dimension = 1) -> IOContractBuilder:
        """Blocks in the grid: numbers, or expressions of the scalars such as `cdiv(n, 256)`."""
        return self._set(grid=LaunchDim(x, y, z))

    def set_block(self, x: Dimension, y: Dimension = 1, z: Dimension = 1) -> IOContractBuilder:
        """Threads in a block, of a CUDA kernel."""
        return self._set(block=LaunchDim(x, y, z))

    def set_num_warps(self, num_warps: int) -> IOContractBuilder:
        """Warps of a Triton program."""
        return self._set(num_warps=num_warps)

    def set_num_stages(self, num_stages: int) -> IOContractBuilder:
        """Software pipeline stages of a Triton program."""
        return self._set(num_stages=num_stages)

    def set_shared_mem(self, size: Dimension) -> IOContractBuilder:
        """Dynamic shared memory of a CUDA kernel, in bytes."""
        return self._set(shared_mem=size)

    def build(self) -> IOContract:
        """The contract of the arguments so far; the builder remains usable."""
        return IOContract(tuple(self._args), LaunchConfig(**self._launch) if self._launch else None)

    def _add(self, arg: ArgSpec) -> IOContractBuilder:
        self._args.append(arg)
        return self

    def _set(self, **launch: Any) -> IOContractBuilder:
        self._launch.update(launch)
        return self
