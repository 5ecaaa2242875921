"""CuTe DSL: the Python side of CUTLASS, which compiles through MLIR, in a tenth of a second for a small kernel.

Its cache keeps what a call of `@cute.jit` compiled, under a key with the source's path, and nothing of `cute.compile`:
the run compiles again. The dry run finds errors, and writes the machine code for the artifacts.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from backends.binary.cubin import kernels
from backends.languages.language import Around, CodeFiles, Language, cubins

FOLDER = "cute_dsl"
MAGIC = "\\7FELF"
FIRST_WITH_FEATURES = 90
"""From this compute capability on it compiles for the card's own features, too ("sm_90a")."""

_ESCAPED = re.compile(rb"\\(\\|[0-9A-F]{2})")
"""As MLIR prints the bytes of a string that are no letters."""


def pretend(arch: str, around: Around) -> None:
    """Compiles for that architecture; launches do nothing."""
    base = importlib.import_module("cutlass.cutlass_dsl").CuTeDSL._get_dsl()
    base.envar.arch = arch + "a" * (int(re.sub(r"\D", "", arch)) >= FIRST_WITH_FEATURES)
    executors = importlib.import_module("cutlass.cutlass_dsl.cuda_jit_executor")
    functions = importlib.import_module("cutlass.base_dsl.jit_executor")
    for kind in (executors.CudaDialectJitCompiledFunction, functions.JitCompiledFunction):
        kind.__call__ = kind.run_compiled_program = _nothing
        kind.to = _itself
    backend = importlib.import_module("cutlass.base_dsl.compile_backend").CompilerBackend
    compile_module = backend.compile

    def compiled(self: Any, context: Any) -> Any:
        function = around(context.function_name, lambda: compile_module(self, context))
        with suppress(ValueError, OSError):
            _keep_machine_code(function)
        return function

    backend.compile = compiled


def _unescaped(code: re.Match[bytes]) -> bytes:
    return code[1] if code[1] == b"\\" else bytes([int(code[1], 16)])


def _keep_machine_code(function: Any) -> None:
    """Writes the cubin that the compiled module holds, as the text of a string, beside the cache. Raises ValueError."""
    text = str(function.ir_module)
    literal = text[text.index(MAGIC) :].partition('"')[0]
    cubin = _ESCAPED.sub(_unescaped, literal.encode("latin-1"))
    folder = Path(importlib.import_module("cutlass.base_dsl.cache_helpers").get_default_generated_ir_path("CUTE_DSL"))
    folder.mkdir(parents=True, exist_ok=True)
    names = ",".join(code.name for code in kernels(cubin))
    (folder / f"{hashlib.sha256(names.encode()).hexdigest()}.cubin").write_bytes(cubin)


def codes(folder: Path) -> Iterator[CodeFiles]:
    """The machine code of each kernel that the dry run compiled, by its own name."""
    return cubins((folder / FOLDER).glob("*.cubin"))


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _itself(function: Any, *args: Any, **kwargs: Any) -> Any:
    return function


LANGUAGE = Language(
    name="cute_dsl",
    title="CuTe DSL",
    module="cutlass",
    package="nvidia-cutlass-dsl",
    caches={"CUTE_DSL_CACHE_DIR": FOLDER},
    refusals=(
        "cutlass.base_dsl.common.DSLUserCode",
        "cutlass.base_dsl.common.DSLOperationBuildError",
        "cutlass._mlir._mlir_libs._cutlass_ir._mlir.ir.MLIRError",
    ),
    compilers=("base_dsl/dsl.py:generate_original_ir", "base_dsl/compile_backend.py:compile"),
    no_device=("cudaErrorInsufficientDriver", "cudaErrorNoDevice"),
    preloaded=True,
    pretend=pretend,
    codes=codes,
)
