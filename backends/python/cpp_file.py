"""Compiles a source in C++ or CUDA C++ as torch's `load` does: built in the builder, loaded in the runner."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

from torch.utils import cpp_extension

from backends.cuda import compiler_options
from domain.kernel import Kernel

LAST_HEADERS = "headers"
"""A folder of a plain library's job. The compiler looks there last: a `math.h` in it hides no other."""
_DEVICE = re.compile(r"__global__|<<<|\bcuda|\bcub/|\bthrust/|\bcutlass/|\bcute/|\.cuh\b")
_PLAIN_HALVES = [
    f"-U__CUDA_NO_{name}__"
    for name in ("HALF_OPERATORS", "HALF_CONVERSIONS", "BFLOAT16_CONVERSIONS", "HALF2_OPERATORS")
]
"""Undoes torch's options, as published files need it: nvcc compiles operators and conversions of half types then."""


def compiled(kernel: Kernel, text: str, folder: Path, name: str, *, is_python_module: bool) -> Any:
    """The extension `name` of that text: a module, or the path of a plain library.

    An extension that cannot run here, or must not, is a stand-in (`backends.extensions.jit_build`). Raises what torch's
    `load` raises, and KernelFault (compile_error) for a compiler option that is not allowed.
    """
    is_plain = kernel.host_function is not None
    with_cuda = is_plain or _DEVICE.search(kernel.source_code) is not None
    path = folder / f"kernel.{'cu' if with_cuda else 'cpp'}"
    if not path.exists() or path.read_bytes() != text.encode():
        path.write_bytes(text.encode())
    options, _ = compiler_options.translate(kernel.metadata)
    if is_plain:  # From torch's folder of the extension, in which ninja compiles.
        options = [*options, "-Xcompiler", f"-idirafter../../{LAST_HEADERS}"]
    # ninja reads them, and hands them to a shell.
    own_options = [shlex.quote(each).replace("$", "$$") for each in options if each != compiler_options.RELAXED]
    return cpp_extension.load(
        name,
        [str(path)],
        extra_cflags=["-O3"],
        extra_cuda_cflags=["-O3", "--extended-lambda", *_PLAIN_HALVES, *own_options],
        extra_include_paths=_cutlass(),
        with_cuda=with_cuda,
        is_python_module=is_python_module,
    )


def _cutlass() -> list[str]:
    """The folders of CUTLASS's headers, where the package `nvidia-cutlass` is installed."""
    spec = importlib.util.find_spec("cutlass_library")
    source = Path(spec.origin).parent / "source" if spec and spec.origin else None
    return [str(source / part) for part in ("include", "tools/util/include") if source and (source / part).is_dir()]
