"""TileLang: it writes CUDA C++ for nvcc; its cache holds the library and the machine code of each kernel."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backends.languages.language import Around, CodeFiles, Language, Unfollowed, cubins

FOLDER = "tilelang"


def pretend(arch: str, around: Around) -> None:
    """Compiles into the cache; a launch makes its outputs and computes nothing."""
    devices: Any = importlib.import_module("tilelang.utils.device")
    devices.IS_CUDA = True  # The builder imported it, and saw no GPU.
    module = importlib.import_module("tilelang.jit.kernel")
    compile_kernel = module.JITKernel._compile_and_create_adapter

    def compiled(kernel: Any, function: Any, out_idx: Any) -> Any:
        name = str(function.attrs.get("global_symbol", "kernel"))
        return around(name, lambda: compile_kernel(kernel, function, out_idx))

    module.JITKernel._compile_and_create_adapter = compiled
    module.JITKernel.__call__ = _outputs


def _outputs(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """The outputs that a kernel with `out_idx` returns."""
    torch = importlib.import_module("torch")  # Not at the top: processes without torch read this table.
    adapter = kernel.adapter
    outputs = []
    for index in adapter.result_idx:
        param = adapter.params[index]
        if not all(isinstance(size, int) for size in param.shape):
            raise Unfollowed("an output of a TileLang kernel has a symbolic size")
        outputs.append(torch.empty(*param.shape, dtype=param.torch_dtype(), device="cuda:0"))
    return outputs[0] if len(outputs) == 1 else outputs or None


def codes(folder: Path) -> Iterator[CodeFiles]:
    """The machine code of each kernel, by its own name."""
    return cubins((folder / FOLDER).glob("*/cuda-binaries/*/*.cubin"))


LANGUAGE = Language(
    name="tilelang",
    title="TileLang",
    module="tilelang",
    package="tilelang",
    caches={"TILELANG_CACHE_DIR": FOLDER},
    compilers=("tilelang/jit/__init__.py:compile", "tilelang/jit/__init__.py:get_tir"),
    tools={
        "Failed to automatically detect CUDA installation": "TileLang compiles with nvcc: the operator takes a "
        "base image with a CUDA toolkit, as docker-compose.yml has it for workers with a GPU"
    },
    no_device=("No registered target detector found an available target",),
    pretend=pretend,
    codes=codes,
)
