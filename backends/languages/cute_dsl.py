"""CuTe DSL: the Python side of CUTLASS, which compiles through MLIR; the run traces again, and finds what was compiled.

Its own cache keeps what a call of `@cute.jit` compiled, under a key with the source's path and the name of its module,
and nothing of `cute.compile`. `share_builds` has it keep both, under a key of the traced module alone.
"""

from __future__ import annotations

import dataclasses
import functools
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


@functools.cache
def share_builds() -> None:
    """Has the cache keep the first compilation of each traced module: once more in a process, it compiles again."""
    prefix = importlib.import_module("backends.source.module_loader").MODULE_PREFIX  # It imports torch: not at the top.
    dsl = importlib.import_module("cutlass.base_dsl.dsl").BaseDSL
    backend = importlib.import_module("cutlass.base_dsl.compile_backend").CompilerBackend
    mangle_name, compile_module = dsl.mangle_name, backend.compile
    known: set[str] = set()

    def mangled(self: Any, *args: Any) -> str:
        return re.sub(prefix + r"\d+", "", mangle_name(self, *args))

    def compiled(self: Any, context: Any) -> Any:
        options = self._dsl.compile_options
        dump_paths = options.full_ptx_path, options.full_cubin_path, options.dump_sass_path
        text = context.module.operation.get_asm(enable_debug_info=False)  # Without the source's path.
        chosen = {kind.__name__: option.value for kind, option in options.options.items()}
        parts = text, f"{chosen} {context.pipeline}", self._dsl.envar.cache_key_str()
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        if key in known or self._dsl.envar.no_cache or any(dump_paths):
            return compile_module(self, context)
        known.add(key)
        return compile_module(self, dataclasses.replace(context, cache_enabled=True, module_hash=key))

    dsl.mangle_name, backend.compile = mangled, compiled


def pretend(arch: str, around: Around) -> None:
    """Compiles for that architecture; launches do nothing."""
    share_builds()
    base = importlib.import_module("cutlass.cutlass_dsl").CuTeDSL._get_dsl()
    base.envar.arch = arch + "a" * (int(re.sub(r"\D", "", arch)) >= FIRST_WITH_FEATURES)
    card = importlib.import_module("torch").cuda.get_device_properties()
    hardware: Any = importlib.import_module("cutlass.utils").HardwareInfo
    hardware.__init__ = _nothing
    hardware.get_device_multiprocessor_count = lambda self: card.multi_processor_count
    hardware.get_max_active_clusters = lambda self, size, *args: max(card.multi_processor_count // size, 1)
    hardware.get_l2_cache_size_in_bytes = lambda self: card.L2_cache_size
    executors = importlib.import_module("cutlass.cutlass_dsl.cuda_jit_executor")
    functions = importlib.import_module("cutlass.base_dsl.jit_executor")
    kinds = [executors.CudaDialectJitCompiledFunction, functions.JitCompiledFunction]
    with suppress(ImportError):  # Without tvm_ffi there are none of its functions.
        ffi = importlib.import_module("cutlass.cutlass_dsl.tvm_ffi_provider")
        kinds += [ffi.TVMFFIJitCompiledFunction, ffi.TVMFFIJitCompiledFunctionWithKwargs]
    for kind in kinds:
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
    no_device=("cudaErrorInsufficientDriver", "cudaErrorNoDevice", "expected device_type=cuda"),
    preloaded=True,
    before_import=share_builds,
    pretend=pretend,
    codes=codes,
)
