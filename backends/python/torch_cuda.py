"""Kernel type `torch_cuda`: PyTorch with CUDA of its own, in Python through load_inline or load, or as a C++ file."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from backends.cuda.source_scan import host_functions, without_comments
from backends.python import cpp_file
from backends.python.base import PythonBackend
from backends.source.entry_point import named_function
from domain.fault import KernelFault
from domain.kernel import Kernel
from domain.kernel_guess import is_cpp
from domain.result import Status

_MODULE = re.compile(r"\bPYBIND11_MODULE\s*\(\s*(\w+)")
_LIBRARY = re.compile(r"\bTORCH_LIBRARY(?:_FRAGMENT)?\s*\(\s*(\w+)")
_DEFINED = re.compile(r'\.def\s*\(\s*"(?:\w+::)?(\w+)')
_WORD = re.compile(r"\w+")
_OWN_NAME = "TORCH_EXTENSION_NAME"
_NAME = "extension"
_USUAL = "forward"
"""The function to call where a file has several and the metadata name none."""
_SIGNATURE = re.compile(r"\w+\((.*)\) ->")
_PARAMETER = re.compile(r"(\w+): (?:(?!, \w+: ).)*")
_BINDINGS = """
#include <torch/extension.h>
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { %s }
"""


class TorchCudaBackend(PythonBackend):
    """Called as `torch` is: `backends.extensions.jit_build` does the rest.

    A source in C++ is compiled whole. Its functions are those that it binds itself (PYBIND11_MODULE, TORCH_LIBRARY),
    else `metadata.functions`, else all that take or return a torch::Tensor.
    """

    def imported(self, kernel: Kernel, folder: Path) -> ModuleType:
        if not is_cpp(kernel.source_code):
            return super().imported(kernel, folder)
        text = kernel.source_code.removeprefix("\ufeff")
        bare = without_comments(text)
        binding, library = _MODULE.search(bare), _LIBRARY.search(bare)
        first_binding = binding or library
        defined = [name for name, words in host_functions(text).items() if "Tensor" in words]
        if first_binding:
            # A macro that binds a function is given its name: `BIND(forward)`.
            words_behind = set(_WORD.findall(bare, first_binding.end()))
            defined = _DEFINED.findall(bare) or [name for name in defined if _last(name) in words_behind]
        names = list(dict.fromkeys(kernel.metadata.get("functions") or defined))
        called = _called(names, kernel, is_bound=first_binding is not None)
        if first_binding is None:
            definitions = (f'm.def("{_last(name)}", &{name});' for name in dict.fromkeys([*names, called]))
            text += _BINDINGS % " ".join(definitions)
        name = binding[1] if binding and binding[1] != _OWN_NAME else _NAME
        is_library = library is not None and binding is None
        extension = cpp_file.compiled(kernel, text, folder, name, is_python_module=not is_library)
        if library and (isinstance(extension, str) or not hasattr(extension, _last(called))):
            extension = getattr(torch.ops, _NAME if library[1] == _OWN_NAME else library[1])
        module = ModuleType(name)
        vars(module)[called] = _wrapped(extension, _last(called), name)
        return module


def _last(name: str) -> str:
    return name.rpartition("::")[2]


def _called(names: list[str], kernel: Kernel, *, is_bound: bool) -> str:
    """The function to call. Raises KernelFault (compile_error) where the file has none or several."""
    if (entry_name := named_function(kernel)) is not None:
        return entry_name
    if len(names) == 1 or _USUAL in names:
        return _USUAL if _USUAL in names else names[0]
    if names or is_bound:
        which = (
            f"the file has several functions ({', '.join(names)})" if names else "the file binds functions by macros"
        )
        raise KernelFault(Status.COMPILE_ERROR, f"{which}: name the one to call in metadata.entry_point")
    raise KernelFault(
        Status.COMPILE_ERROR,
        "the C++ file has no function over torch::Tensor, and binds none (PYBIND11_MODULE, TORCH_LIBRARY): plain CUDA "
        "C++ goes with kernel_type cuda",
    )


def _wrapped(extension: Any, name: str, module: str) -> Callable[..., Any]:
    """The extension's function as one of Python's, with a signature where its binding tells it.

    Raises KernelFault (compile_error) where the extension has no such function.
    """
    function = getattr(extension, name, None)
    if function is None:
        bound = ", ".join(key for key in dir(extension) if not key.startswith("_"))
        raise KernelFault(Status.COMPILE_ERROR, f"Entry point '{name}' not found; the file binds: {bound or 'nothing'}")

    def call(*args: Any) -> Any:
        return function(*args)

    call.__module__ = module
    if (parameters := _parameters(function)) is not None:
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def _parameters(function: Any) -> list[inspect.Parameter] | None:
    """The parameters by position: of an operator by its schema, else by pybind11's first line of documentation."""
    if isinstance(function, torch._ops.OpOverloadPacket):
        overload = function.overloads()[0]  # type: ignore[no-untyped-call]
        arguments = getattr(function, overload)._schema.arguments
        given = [(each.name, each.has_default_value()) for each in arguments if not each.kwarg_only]
    else:
        signature = _SIGNATURE.match(inspect.getdoc(function) or "")
        if signature is None or "*args" in signature[1]:  # The latter is pybind11's word for overloads.
            return None
        given = [(each[1], " = " in each[0]) for each in _PARAMETER.finditer(signature[1])]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [inspect.Parameter(name, kind, default=None if optional else inspect._empty) for name, optional in given]
