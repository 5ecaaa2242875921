"""Kernel type `triton`: a jitted kernel launched under a contract, or a Python function that launches its own."""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import Any

import triton
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from backends.base import Target
from backends.python.base import PythonBackend
from backends.source import entry_point
from backends.source.entry_point import Entry
from backends.triton.aot_compile import compile_ahead
from backends.triton.launch import TritonLaunch, Unbound, bind, function_of
from domain.contract import IOContract
from domain.fault import KernelFault
from domain.kernel import Kernel
from domain.result import Status

_KERNEL_TYPES = (JITFunction, InterpretedFunction, Autotuner, Heuristics)
_PYTHON_ENTRY_KEYS = ("function_name", "entry_point", "class_name")


class TritonBackend(PythonBackend):
    """Launches the kernel that metadata.kernel_name names, else the first that the contract's arguments fit.

    A source whose metadata name a function or class, or that has a `Model`, is called as Python instead. The same holds
    for a source with `kernel_fn` or just one function, unless the contract has a grid.
    """

    def entry(self, module: ModuleType, kernel: Kernel) -> Entry:
        kernels = _kernels(module)
        kernel_name = kernel.metadata.get("kernel_name")
        if kernel_name:
            return _by_name(str(kernel_name), kernels, module, kernel)
        if self._is_python(module, kernel, kernels):
            return self._python_entry(module, kernel, kernels)
        name = _fitting(kernels, kernel.io)
        return _direct(name, kernels[name], kernel.io)

    def facts(self, entry: Entry, kernel: Kernel, target: Target) -> dict[str, Any]:
        """The kernel and how it is launched; for a GPU, also compiles it into the cache that the runner will use."""
        interpreted = triton.knobs.runtime.interpret
        facts: dict[str, Any] = {"triton": triton.__version__, "interpreted": interpreted, "notes": []}
        launch = entry.target
        if not isinstance(launch, TritonLaunch) or kernel.io is None:
            return facts
        if launch.autotuned and interpreted:
            facts["notes"].append("interpreted on the CPU: the autotuner's first allowed configuration is used")
        if launch.autotuned and (kernel.io.launch.num_warps or kernel.io.launch.num_stages):
            facts["notes"].append("num_warps and num_stages come from the autotuner's configurations")
        if interpreted or target.arch is None:
            return facts
        ahead = compile_ahead(launch, kernel.io, target.arch)
        return {**facts, **ahead, "notes": facts["notes"] + ahead.get("notes", [])}

    def _python_entry(self, module: ModuleType, kernel: Kernel, kernels: dict[str, Any]) -> Entry:
        try:
            return entry_point.resolve(module, kernel)
        except KernelFault as fault:
            if kernels:
                raise
            message = f"the source has no @triton.jit kernel at module level, and as plain Python: {fault.message}"
            raise KernelFault(fault.status, message) from fault

    def _is_python(self, module: ModuleType, kernel: Kernel, kernels: dict[str, Any]) -> bool:
        """Whether a Python function or class is meant: it is named, or nothing else can be launched."""
        if not kernels or any(kernel.metadata.get(key) for key in _PYTHON_ENTRY_KEYS):
            return True
        if any(isinstance(getattr(module, name, None), type) for name in entry_point.CLASS_NAMES):
            return True
        if kernel.io is not None and kernel.io.launch.grid is not None:
            return False
        try:
            resolved = entry_point.resolve(module, kernel)
        except KernelFault:
            return False
        # A kernel may itself be called kernel_fn, and looks callable.
        return not isinstance(resolved.target, _KERNEL_TYPES)


def _kernels(module: ModuleType) -> dict[str, Any]:
    """The kernels at module level by name, the source's own before the imported ones."""
    kernels = {name: value for name, value in vars(module).items() if isinstance(value, _KERNEL_TYPES)}
    return dict(sorted(kernels.items(), key=lambda item: function_of(item[1]).__module__ != module.__name__))


def _by_name(name: str, kernels: dict[str, Any], module: ModuleType, kernel: Kernel) -> Entry:
    if name in kernels:
        return _direct(name, kernels[name], kernel.io)
    if isinstance(getattr(module, name, None), FunctionType):
        return entry_point.named(module, name, kernel)
    there = f"The source has: {', '.join(kernels)}." if kernels else "The source has no @triton.jit kernel."
    raise KernelFault(Status.COMPILE_ERROR, f"Kernel '{name}' not found. {there}")


def _fitting(kernels: dict[str, Any], io: IOContract | None) -> str:
    """The first kernel that the arguments fit and that no other kernel calls, because helper functions are jitted
    too."""
    called = {name for kernel in kernels.values() for name in function_of(kernel).__code__.co_names}
    candidates = sorted(kernels, key=lambda name: name in called)
    for name in candidates:
        try:
            bind(kernels[name], io.args if io else ())
        except Unbound:
            continue
        return name
    return candidates[0]


def _direct(name: str, kernel: Any, io: IOContract | None) -> Entry:
    if io is None:
        raise KernelFault(
            Status.CONTRACT_MISMATCH,
            f"kernel {name} needs an IO contract: give io.args, one for each parameter, and io.launch.grid",
        )
    try:
        binding = bind(kernel, io.args)
    except Unbound as error:
        parameters = ", ".join(function_of(kernel).__code__.co_varnames[: function_of(kernel).__code__.co_argcount])
        raise KernelFault(
            Status.CONTRACT_MISMATCH,
            f"kernel {name}({parameters}) does not take the contract's arguments "
            f"({', '.join(argument.name for argument in io.args) or 'none'}): {error}",
        ) from error
    return Entry(f"kernel {name}", TritonLaunch(name, kernel, io, binding))
