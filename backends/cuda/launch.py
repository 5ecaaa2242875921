"""Runs a compiled CUDA kernel in its runner: loads it into torch's context and launches it on torch's stream."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from cuda.bindings import driver

from backends.base import Executable
from backends.cuda.argument_packing import check_constants, pack_word
from backends.cuda.launch_geometry import Geometry, geometry
from backends.cuda.signature import Parameter, spell
from domain.contract import IOContract
from domain.fault import InfrastructureFault, KernelFault
from domain.kernel import Kernel
from domain.result import Status

USUAL_STACK = 1024
"""Bytes of stack for each thread that the driver provides in every context."""
PLAIN_SHARED_BYTES = 48 * 1024
"""Maximum bytes of shared memory that a launch may take without an opt-in call to the driver."""

_ADVICE = {
    "CUDA_ERROR_INVALID_VALUE": "grid, block or shared memory is beyond what the device takes",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": (
        "the block needs more registers than there are: use fewer threads a block, or __launch_bounds__"
    ),
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": (
        "a grid-wide sync needs every block resident at once: use a smaller grid"
    ),
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the kernel was compiled for another architecture",
    "CUDA_ERROR_OUT_OF_MEMORY": "the device has no memory left for the kernel",
}


class CudaExecutable(Executable):
    """One kernel with its argument buffer laid out in advance, so that a call only writes addresses and launches."""

    def __init__(
        self,
        name: str,
        parameters: list[Parameter],
        io: IOContract,
        module: Any,
        symbol: str,
        device: int,
        *,
        cooperative: bool,
        uses_dynamic_shared: bool,
        uses_device_runtime: bool,
    ) -> None:
        self.entry = f"kernel {name}"
        self._signature = name + spell(parameters)
        self._parameters = parameters
        self._module = module
        self._function = function_of(module, symbol)
        self._device = device
        # Takes 0.1 us, where torch.cuda.current_stream() takes 1 us.
        self._stream_of: Any = torch._C._cuda_getCurrentRawStream
        self._uses_dynamic_shared = uses_dynamic_shared
        self._uses_device_runtime = uses_device_runtime
        self._launch_kernel = driver.cuLaunchCooperativeKernel if cooperative else driver.cuLaunchKernel
        self._tail: tuple[Any, ...] = () if cooperative else (0,)
        # Every parameter has at most 8 bytes, so each gets one word of a buffer with a fixed address.
        self._words = (ctypes.c_uint64 * max(len(parameters), 1))()
        start = ctypes.addressof(self._words)
        self._pointers = (ctypes.c_void_p * max(len(parameters), 1))(
            *(start + 8 * position for position in range(len(parameters)))
        )
        self._follow(io)

    def use_case(self, kernel: Kernel) -> None:
        if kernel.io is not None:
            self._follow(kernel.io)

    def call(self, args: list[Any]) -> None:
        """Launches once; the contract's output arguments hold the outputs."""
        words = self._words
        try:
            for word, position in self._tensors:
                words[word] = args[position].data_ptr()
            for position, value in self._bound:
                if args[position] is not value and args[position] != value:
                    self._bind(args)
                    break
        except (AttributeError, IndexError) as error:
            raise KernelFault(
                Status.CONTRACT_MISMATCH,
                f"{self._signature} was called with {len(args)} arguments, or with a value where it takes a tensor",
                compiled=True,
            ) from error
        # Part of the call, as the copy of a host function is: each call has values of its own.
        for address, size, position in self._constants:
            stream = self._stream_of(self._device)
            (status,) = driver.cuMemcpyDtoDAsync(address, args[position].data_ptr(), size, stream)
            if status:  # The error of an earlier launch.
                raise _launch_fault(status, self.entry, self.geometry)
        (status,) = self._launch()
        if status:
            raise _launch_fault(status, self.entry, self.geometry)

    def close(self) -> list[str]:
        """Waits for the last launch and unloads the module, with its global variables; ends its claims on the L2.

        The heap of device functions, what they print, and memory for deep stacks stay with the context.
        """
        checked(driver.cuCtxSynchronize())
        deep = attribute(self._function, driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES) > USUAL_STACK
        checked(driver.cuModuleUnload(self._module))
        driver.cuCtxResetPersistingL2Cache()  # A device without such claims refuses.
        found = {"device heap or printed text": self._uses_device_runtime, "stacks of its threads": deep}
        return [name for name, is_there in found.items() if is_there]

    def _follow(self, io: IOContract) -> None:
        self._io = io
        addresses = {argument.name: _variable(self._module, argument.name) for argument in io.constants}
        variables = {name: variable for name, variable in addresses.items() if variable is not None}
        check_constants(io.constants, {name: size for name, (_, size) in variables.items()})
        passed = [i for i, argument in enumerate(io.args) if not argument.is_constant]
        self._word_of = {position: word for word, position in enumerate(passed)}
        self._tensors = tuple((word, i) for i, word in self._word_of.items() if io.args[i].is_tensor)
        self._constants = tuple(
            (variables[argument.name][0], argument.nbytes, i)
            for i, argument in enumerate(io.args)
            if argument.is_constant and argument.nbytes
        )
        self._bound = [(i, argument.value) for i, argument in enumerate(io.args) if not argument.is_tensor]
        self._bind([argument.value for argument in io.args])

    def _bind(self, args: list[Any]) -> None:
        """Packs the scalars into the argument buffer and evaluates the launch sizes again."""
        self._bound = [(position, args[position]) for position, _ in self._bound]
        for position, value in self._bound:
            word = self._word_of[position]
            self._words[word] = pack_word(self._parameters[word], value, self._io.args[position].name)
        scalars = {self._io.args[i].name: value for i, value in self._bound if isinstance(value, (int, float))}
        self.geometry = geometry(self._io, scalars, self._uses_dynamic_shared)
        self._provide_shared_memory()

        device, function, launch_kernel, tail = self._device, self._function, self._launch_kernel, self._tail
        stream_of = self._stream_of
        sizes = (*self.geometry.grid, *self.geometry.block, self.geometry.shared)
        pointers = ctypes.addressof(self._pointers)
        self._launch: Callable[[], tuple[Any, ...]] = lambda: launch_kernel(
            function, *sizes, stream_of(device), pointers, *tail
        )

    def _provide_shared_memory(self) -> None:
        static = attribute(self._function, driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
        if static + self.geometry.shared <= PLAIN_SHARED_BYTES:
            return
        most = checked(
            driver.cuDeviceGetAttribute(
                driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, self._device
            )
        )
        if static + self.geometry.shared > most:
            raise KernelFault(
                Status.RUNTIME_ERROR,
                f"{self.entry} asks for {self.geometry.shared} bytes of dynamic and {static} of static shared memory; "
                f"this device has {most} for a block",
                compiled=True,
            )
        checked(
            driver.cuFuncSetAttribute(
                self._function,
                driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                self.geometry.shared,
            )
        )


def load_module(cubin: bytes, device: int) -> Any:
    """The module in torch's own context of that device."""
    torch.cuda.init()  # type: ignore[no-untyped-call]
    checked(driver.cuInit(0))
    context = checked(driver.cuDevicePrimaryCtxRetain(checked(driver.cuDeviceGet(device))))
    checked(driver.cuCtxSetCurrent(context))
    status, module = driver.cuModuleLoadData(cubin)
    if status:
        raise KernelFault(Status.RUNTIME_ERROR, f"the driver did not load the kernel: {_named(status)}", compiled=True)
    return module


def function_of(module: Any, symbol: str) -> Any:
    return checked(driver.cuModuleGetFunction(module, symbol.encode()))


def _variable(module: Any, name: str) -> tuple[Any, int] | None:
    """Address and size in bytes of a global variable in the machine code; None without it, as asm may declare it in the
    PTX alone."""
    status, address, size = driver.cuModuleGetGlobal(module, name.encode())
    return None if status else (address, int(size))


def attribute(function: Any, which: Any) -> int:
    """Reads one of the function's attributes from the driver."""
    return int(checked(driver.cuFuncGetAttribute(which, function)))


def checked(answer: tuple[Any, ...]) -> Any:
    """Unpacks a driver call's result. Raises InfrastructureFault where the call failed for no fault of the kernel."""
    status, *values = answer
    if status:
        raise InfrastructureFault(f"CUDA driver: {_named(status)}")
    return values[0] if values else None


def _launch_fault(status: Any, entry: str, geometry: Geometry) -> KernelFault:
    code = Status.OUT_OF_MEMORY if status.name == "CUDA_ERROR_OUT_OF_MEMORY" else Status.RUNTIME_ERROR
    return KernelFault(code, f"{entry} was not launched: {_named(status)}; it was given {geometry}", compiled=True)


def _named(status: Any) -> str:
    advice = _ADVICE.get(status.name)
    return f"{status.name} ({advice})" if advice else str(status.name)
