"""Kernel type `cuda`: CUDA C++ without host code, or with a host function that launches its kernels."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from backends.base import ALONE, Artifact, ContractLaunch, Executable, ReferenceArguments, Target, Task
from backends.cuda.argument_packing import check_arguments, mismatched_pointers, pack_word
from backends.cuda.backend import CudaBackend, contract_of
from backends.cuda.signature import CALL, Parameter, host_snippet, read_library, spell
from backends.cuda.source_scan import global_functions, host_functions
from backends.extensions import jit_build
from backends.python import cpp_file
from backends.python.base import PythonBackend
from backends.source.entry_point import Entry
from domain.contract import IOContract
from domain.fault import KernelFault
from domain.kernel import Kernel
from domain.result import Status


class CudaSourceBackend(PythonBackend):
    """A source whose `metadata.entry_point` names a host function is built as torch_cuda's extensions are.

    Without host code, NVRTC compiles it (`backends.cuda`).
    """

    def build(self, kernel: Kernel, folder: Path, target: Target, task: Task = ALONE) -> Artifact:
        if kernel.host_function is None:
            return CudaBackend().build(kernel, folder, target, task)
        return super().build(kernel, folder, target, task)

    def load(
        self, kernel: Kernel, folder: Path, target: Target, artifact: Artifact, borrowed: ReferenceArguments, seed: int
    ) -> Executable:
        if kernel.host_function is None:
            return CudaBackend().load(kernel, folder, target, artifact, borrowed, seed)
        return super().load(kernel, folder, target, artifact, borrowed, seed)

    def imported(self, kernel: Kernel, folder: Path) -> ModuleType:
        name, io = str(kernel.host_function), contract_of(kernel)
        _check_name(name, kernel.source_code)
        text = kernel.source_code.removeprefix("\ufeff") + host_snippet(name)
        symbol = name.replace("::", "_")
        # Some published files include its declaration: LeetGPU's "solve.h".
        headers = folder / cpp_file.LAST_HEADERS
        headers.mkdir(exist_ok=True)
        (headers / f"{symbol}.h").touch()
        library = cpp_file.compiled(kernel, text, folder, symbol, is_python_module=False)
        built = folder / jit_build.FOLDER / symbol / f"{symbol}.so"
        module = ModuleType(symbol)
        vars(module)[name] = HostFunction(name, read_library(built.read_bytes()), io, library)
        return module

    def entry(self, module: ModuleType, kernel: Kernel) -> Entry:
        name = str(kernel.host_function)
        return Entry(f"function {name}", vars(module)[name])

    def facts(self, entry: Entry, kernel: Kernel, target: Target) -> dict[str, Any]:
        function = entry.target
        assert isinstance(function, HostFunction)
        return {"parameters": spell(function.parameters), "notes": function.notes}


class HostFunction(ContractLaunch):
    """A host function of a library, called with the contract's arguments on torch's current device.

    A parameter of type `cudaStream_t` is torch's current stream, and has no argument in the contract.
    """

    def __init__(self, name: str, parameters: list[Parameter], io: IOContract, library: Any) -> None:
        self.parameters = parameters
        self._name = name
        self._streams = [i for i, parameter in enumerate(parameters) if parameter.kind == "stream"]
        self._given = [i for i, parameter in enumerate(parameters) if parameter.kind != "stream"]
        bound = [parameters[i] for i in self._given]
        check_arguments(name, bound, io.args)
        self.notes = mismatched_pointers(bound, io.args)
        self._call: Any = getattr(ctypes.CDLL(library), CALL) if isinstance(library, str) else library.call
        if isinstance(library, str):
            self._call.restype = ctypes.c_char_p
        self.follow(io)

    def follow(self, io: IOContract) -> None:
        self._names = [argument.name for argument in io.args]
        self._scalars: dict[int, Any] = {}
        self._words = (ctypes.c_uint64 * max(len(self.parameters), 1))()  # Null where an argument is None.

    def __call__(self, *args: Any) -> None:
        for position, value, name in zip(self._given, args, self._names, strict=True):
            if isinstance(value, torch.Tensor):
                self._words[position] = value.data_ptr()
            elif self._scalars.get(position) is not value:
                self._words[position] = pack_word(self.parameters[position], value, name)
                self._scalars[position] = value
        for position in self._streams:
            self._words[position] = torch.cuda.current_stream().cuda_stream
        if (problem := self._call(self._words)) is not None:
            raise RuntimeError(f"{self._name}() {problem.decode(errors='replace')}")


def _check_name(name: str, source: str) -> None:
    """Raises KernelFault (compile_error) where the source defines no host function of that name."""
    functions = host_functions(source)
    if name in functions:
        return
    if any(name == function.name for function in global_functions(source)):
        advice = "it is a kernel: name it in metadata.kernel_name, with the contract's launch, or name the function"
        advice += " that launches it"
    else:
        advice = f"the source has: {', '.join(functions) or 'no function for the host'}"
    raise KernelFault(Status.COMPILE_ERROR, f"Entry point '{name}' is no function for the host; {advice}")
