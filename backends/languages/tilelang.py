"""TileLang: it writes CUDA C++ for nvcc; its cache holds the library and the machine code of each kernel."""

from __future__ import annotations

import functools
import importlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backends.languages.language import Around, CodeFiles, Language, Unfollowed, cubins
from domain.fault import OPERATORS_PART

FOLDER = "tilelang"
NO_ARCHITECTURE = "no GPU gives TileLang's target its architecture"


def pretend(arch: str, around: Around) -> None:
    """Compiles into the cache, all configurations of a search too; a launch makes its outputs and computes nothing."""
    devices: Any = importlib.import_module("tilelang.utils.device")
    devices.IS_CUDA = True  # The builder imported it, and saw no GPU.
    torch: Any = importlib.import_module("torch")
    driver: Any = importlib.import_module("tilelang.carver.arch.driver.cuda_driver")
    driver.get_cuda_device_properties = lambda device=0: torch.cuda.get_device_properties(device)
    module = importlib.import_module("tilelang.jit.kernel")
    compile_kernel = module.JITKernel._compile_and_create_adapter

    def compiled(kernel: Any, function: Any, out_idx: Any) -> Any:
        name = str(function.attrs.get("global_symbol", "kernel"))
        return around(name, lambda: compile_kernel(kernel, function, out_idx))

    module.JITKernel._compile_and_create_adapter = compiled
    module.JITKernel.__call__ = _outputs
    tuner = importlib.import_module("tilelang.autotuner.tuner").AutoTuner
    search = tuner.run

    def compiled_and_left(*args: Any, **kwargs: Any) -> Any:
        try:
            return search(*args, **kwargs)
        except Exception as error:
            raise Unfollowed("TileLang measures its configurations on the GPU") from error

    tuner.run = compiled_and_left


def look_again() -> None:
    """Has its modules look for the GPU, which the zygote's import did not see."""
    for name in ("tilelang.utils.device", "tilelang.profiler.torch_bench", "tilelang.profiler.bench"):
        importlib.reload(importlib.import_module(name))
    _tell_failures()


@functools.cache
def _tell_failures() -> None:
    """Has it say what is wrong: without a GPU it compiles for sm_50, and what nvcc prints is not in its error."""
    targets: Any = importlib.import_module("tilelang.cuda.target")
    target_of = targets._cuda_target_from_arch

    def of_a_gpu(arch: str | None) -> Any:
        if arch is None:
            raise ValueError(NO_ARCHITECTURE)
        return target_of(arch)

    targets._cuda_target_from_arch = of_a_gpu
    libraries: Any = importlib.import_module("tilelang.jit.adapter.libgen")
    libraries.subprocess = _Captured


class _Captured:
    """The module `subprocess` for TileLang's backend "cython", which puts a captured output into its error."""

    run = functools.partial(subprocess.run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _outputs(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """The outputs that a kernel with `out_idx` returns; the inputs' sizes give the symbolic ones."""
    torch = importlib.import_module("torch")  # Not at the top: processes without torch read this table.
    substitute = importlib.import_module("tvm.tirx.stmt_functor").substitute
    simplify = importlib.import_module("tvm.arith").Analyzer().simplify
    adapter = kernel.adapter
    inputs = [param for index, param in enumerate(adapter.params) if index not in adapter.result_idx]
    sizes = {
        size: length
        for param, value in zip(inputs, args, strict=False)
        for size, length in zip(param.shape, getattr(value, "shape", ()), strict=False)
        if type(size).__name__ == "Var"
    }
    outputs = []
    for index in adapter.result_idx:
        param = adapter.params[index]
        try:
            shape = [size if isinstance(size, int) else int(simplify(substitute(size, sizes))) for size in param.shape]
        except TypeError:
            raise Unfollowed("an output of a TileLang kernel has a size that the inputs do not give") from None
        outputs.append(torch.empty(*shape, dtype=param.torch_dtype(), device="cuda:0"))
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
    compilers_without_gpu=("tilelang/contrib/nvcc.py:compile_cuda", "tilelang/jit/adapter/libgen.py:compile_lib"),
    tools={
        "Failed to automatically detect CUDA installation": f"TileLang compiles with nvcc: {OPERATORS_PART} takes a "
        "base image with a CUDA toolkit, as docker-compose.yml has it for workers with a GPU"
    },
    no_device=(
        "No registered target detector found an available target",
        NO_ARCHITECTURE,
        "Failed to get device properties.",
    ),
    preloaded=True,
    before_import=look_again,
    pretend=pretend,
    codes=codes,
)
