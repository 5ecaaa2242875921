"""Finds what to call in a Python source: a class and its method, or a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from torch import nn

from domain.fault import KernelFault
from domain.kernel import Kernel
from domain.result import Status

CLASS_NAMES = ("ModelNew", "Model")
"""A candidate often includes the reference's `Model`, so `ModelNew` comes first; for a reference `Model` does."""

DEFAULT_FUNCTION = "kernel_fn"
DEFAULT_METHODS = ("forward", "__call__")
INPUT_MAKERS = ("get_inputs", "get_init_inputs")


@dataclass(frozen=True)
class Entry:
    """A class to construct and a method of it, or a function (then `method` is None)."""

    label: str
    target: Callable[..., Any]
    method: str | None = None


def resolve(module: ModuleType, kernel: Kernel) -> Entry:
    """The entry that the metadata name, else the first known class name, else `kernel_fn`, else the only function.

    Raises KernelFault (COMPILE_ERROR) naming what is missing and what the source defines.
    """
    function, class_name = named_function(kernel), metadata_text(kernel, "class_name")
    if function:
        return named(module, function, kernel)
    if class_name:
        return _class(module, class_name, kernel)
    for name in reversed(CLASS_NAMES) if kernel.is_reference or kernel.under_compile else CLASS_NAMES:
        if isinstance(getattr(module, name, None), type):
            return _class(module, name, kernel)
    functions = [DEFAULT_FUNCTION] if callable(getattr(module, DEFAULT_FUNCTION, None)) else _own_functions(module)
    if len(functions) == 1:
        return Entry(f"function {functions[0]}", getattr(module, functions[0]))
    raise _missing(
        "Model",
        module,
        f"define class Model or ModelNew or function {DEFAULT_FUNCTION}, or name another in metadata "
        "(class_name, function_name)",
    )


def named_function(kernel: Kernel) -> str | None:
    """metadata.function_name, or its other name entry_point."""
    return metadata_text(kernel, "function_name") or metadata_text(kernel, "entry_point")


def named(module: ModuleType, name: str, kernel: Kernel) -> Entry:
    """The function or class of that name; raises KernelFault (COMPILE_ERROR) when there is none."""
    target = getattr(module, name, None)
    if isinstance(target, type):
        return _class(module, name, kernel)
    if not callable(target):
        raise _missing(name, module)
    return Entry(f"function {name}", target)


def _class(module: ModuleType, name: str, kernel: Kernel) -> Entry:
    target = getattr(module, name, None)
    if not isinstance(target, type):
        raise _missing(name, module)
    method = metadata_text(kernel, "method_name") or _default_method(target)
    if not callable(getattr(target, method, None)) or getattr(target, method) is nn.Module.forward:
        methods = [key for key, value in vars(target).items() if isinstance(value, FunctionType) and key[0] != "_"]
        raise KernelFault(
            Status.COMPILE_ERROR,
            f"Entry point '{name}.{method}' not found; class {name} has: {', '.join(methods) or 'no public method'}",
        )
    label = f"class {name}" if method in DEFAULT_METHODS else f"method {name}.{method}"
    return Entry(label, target, method)


def _default_method(target: type) -> str:
    """`forward`, or `__call__` for a class that has only that; every torch module has a `__call__`, which runs
    `forward`."""
    own_call = any("__call__" in vars(base) for base in target.__mro__)
    return DEFAULT_METHODS[own_call and not hasattr(target, "forward")]


def _own_functions(module: ModuleType) -> list[str]:
    """Public functions that the source defines, except its input makers and functions without parameters."""
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, FunctionType)
        and value.__module__ == module.__name__
        and not name.startswith("_")
        and name not in INPUT_MAKERS
        and inspect.signature(value).parameters
    ]


def _missing(name: str, module: ModuleType, advice: str = "") -> KernelFault:
    defined = [
        f"{'class' if isinstance(value, type) else 'function'} {key}"
        for key, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__ and callable(value)
    ]
    there = f"the source defines: {', '.join(defined) or 'nothing callable'}"
    parts = [f"Entry point '{name}' not found", advice, there]
    return KernelFault(Status.COMPILE_ERROR, "; ".join(part for part in parts if part))


def metadata_text(kernel: Kernel, key: str) -> str | None:
    """The text under that key of the metadata; None where it is missing or blank. Raises KernelFault if it is none."""
    value = kernel.metadata.get(key)
    if value is not None and not isinstance(value, str):
        raise KernelFault(Status.COMPILE_ERROR, f"metadata.{key} has to be a string, not {value!r}")
    return value.strip() or None if value else None
