"""Triton's driver for a GPU that is not there: kernels are compiled for it, and their launches do nothing."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from backends.binary import cubin
from backends.binary.occupancy import REGISTERS, WARP
from backends.dry_run.fake_tensors import DEVICE
from backends.dry_run.pretended_cuda import THREADS, Properties, benchmark, capability_of
from backends.source.triton_errors import explained


class PretendedDriver:
    """Replaces Triton's driver as far as compiling and a launch need it."""

    get_device_interface = staticmethod(lambda: torch.cuda)
    get_benchmarker = staticmethod(lambda: benchmark)

    def __init__(self, arch: str, properties: Properties | None = None) -> None:
        """Without `properties` it can compile, and not launch."""
        self._target = GPUTarget("cuda", capability_of(arch), WARP)
        if properties is not None:
            self.utils = _Utilities(properties)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        return divmod(int(self._target.arch), 10)

    def get_active_torch_device(self) -> torch.device:
        return DEVICE

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0, device=DEVICE)

    def clear_cache(self, cache: torch.Tensor) -> None:
        pass

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        """Triton calls this to make what launches a kernel."""
        with suppress(Exception):  # The first launch repeats it.
            compile_launch(source, metadata)
        return lambda *args: None


class _Utilities:
    """The functions of the driver's library that Triton and sources call from Python."""

    def __init__(self, properties: Properties) -> None:
        self._properties = properties

    def get_device_properties(self, device: int) -> dict[str, int]:
        return _DeviceProperties(self._properties)

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        """Handles of module and function, and the kernel's registers, spills and maximum of threads."""
        registers = WARP
        with suppress(ValueError):
            (code,) = cubin.kernels(binary)
            registers = max(code.registers, 1)
        return 1, 1, registers, 0, THREADS


class _DeviceProperties(dict[str, int]):
    """The card's limits by Triton's names; a guessed one is read from `properties`, which notes that."""

    def __init__(self, properties: Properties) -> None:
        super().__init__(max_shared_mem=properties.shared_memory_per_block_optin, max_num_regs=REGISTERS, warpSize=WARP)
        self._properties = properties

    def __missing__(self, name: str) -> int:
        if name != "multiprocessor_count":
            raise KeyError(name)
        return int(self._properties.multi_processor_count)


def pretend_triton(arch: str, properties: Properties, around: Callable[[str, Callable[[], Any]], Any]) -> None:
    """Has Triton compile for the pretended card in this process, each kernel through `around(name, compile)`."""
    driver.set_active(PretendedDriver(arch, properties))
    compile_kernel = triton.compiler.compile

    def compiled(src: Any, *args: Any, **kwargs: Any) -> Any:
        compile_launcher()
        name = str(getattr(src, "name", "kernel"))
        return explained(lambda: around(name, lambda: compile_kernel(src, *args, **kwargs)))

    triton.compiler.compile = compiled


@cache
def compile_launcher() -> None:
    """Compiles the C code by which Triton loads and launches kernels, which otherwise the first launch does.

    It links with the GPU's driver; where that is missing the first launch compiles it.
    """
    with suppress(Exception):
        importlib.import_module("triton.backends.nvidia.driver").CudaUtils()


def compile_launch(source: Any, metadata: Any) -> None:
    """Compiles the C code that launches one kernel, which Triton before 3.7 has for each signature.

    It links with the GPU's driver and relies on Triton's internals. Raises what goes wrong with them.
    """
    before = driver._active
    try:
        nvidia = importlib.import_module("triton.backends.nvidia.driver")
        driver.set_active(SimpleNamespace(utils=nvidia.CudaUtils()))
        nvidia.CudaLauncher(source, metadata)
    finally:
        driver.set_active(before)
