"""The compilation of one CUDA source: which kernel, with which options, and what its parameters are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from backends.binary import ptxas_report
from backends.binary.occupancy import occupancy
from backends.cuda import compiler_options, header_shims, nvrtc
from backends.cuda.entry_selection import UnknownKernel, choose
from backends.cuda.headers import include_folders
from backends.cuda.launch_geometry import geometry
from backends.cuda.signature import SNIPPET_NAME, Parameter, entries, read_entry, read_table, snippet, spell
from backends.cuda.source_scan import global_functions, visible_code
from domain.fault import KernelFault
from domain.kernel import Kernel
from domain.result import Status

_ARCHS_WITH_VARIANT = frozenset({"sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121"})
_HOST_CODE = "not allowed in JIT mode"
_TORCHS_FOLDERS = ("torch/", "ATen/", "c10/", "pybind11/", "Python.h")
_ERROR = re.compile(r"^.*\berror(?: #\S+)?:.*$", re.MULTILINE)
_WITH_LINES = "-lineinfo"
"""Changes no code; by it a sanitizer and a profiler name the source's lines."""
_AFRESH = "--no-cache"
"""What NVRTC takes out of its own cache comes without the assembler's report. Builds are kept elsewhere."""
_OUR_PLACES = (SNIPPET_NAME, "__ke_", "__nv_name_map")
"""What the log says of errors in what we put behind the source, as against errors in the source."""

_UNUSED_METADATA = ("jitify", "include_dirs", "libraries", "extra_ldflags", "extra_cuda_cflags")


@dataclass(frozen=True)
class Attempt:
    """One compilation that went well: which kernel it is for, and its parameters."""

    compilation: nvrtc.Compilation
    name: str
    symbol: str
    parameters: list[Parameter]

    @property
    def warnings(self) -> str:
        """The log without the assembler's report, which the facts hold."""
        return ptxas_report.without(self.compilation.log).strip()

    @property
    def cooperative(self) -> bool:
        """A kernel that syncs its whole grid reads these registers, and only a cooperative launch fills them."""
        return "%envreg" in self.compilation.ptx

    @property
    def dynamic_shared(self) -> bool:
        return re.search(r"\.extern\s+\.shared\b", self.compilation.ptx) is not None


class Build:
    """One source and its options; `notes` are sentences for the person who sent it."""

    def __init__(self, kernel: Kernel, arch: str) -> None:
        metadata = kernel.metadata
        self.source = kernel.source_code.removeprefix("\ufeff")  # An editor's byte order mark: NVRTC knows none.
        self.io = kernel.io
        self.wanted = _text(metadata, "kernel_name")
        self.expressions = _texts(metadata, "name_expressions")
        self.notes: list[str] = []
        self.arch = _with_variant(arch)
        self.user_options, notes = compiler_options.translate(metadata)
        self.notes += notes
        compiler = metadata.get("backend") or "nvrtc"
        if compiler not in ("nvrtc", "nvcc"):
            raise KernelFault(Status.COMPILE_ERROR, f"metadata.backend is 'nvrtc' or 'nvcc', not {compiler!r}")
        if compiler == "nvcc":
            self.notes.append("compiled by NVRTC instead of nvcc: same device compiler, no host code")
        self.notes += [f"metadata.{key} is not used for raw CUDA" for key in _UNUSED_METADATA if metadata.get(key)]
        self.functions = global_functions(self.source)
        self.options = [
            f"-arch={self.arch}",
            ptxas_report.VERBOSE,
            _WITH_LINES,
            _AFRESH,
            f"--pre-include={header_shims.PRELUDE}",
            "--diag-suppress=47",  # A source or header may define the prelude's macros again.
            *(f"-I{path}" for path in include_folders()),
            *(["-D__KE_OWN_INTEGERS"] if header_shims.own_integers(visible_code(self.source)) else []),
            *(option for option in self.user_options if option != _WITH_LINES),
        ]

    def compile(self) -> Attempt:
        """Raises KernelFault (compile_error) with the compiler's log, or saying which kernels there are."""
        try:
            name = choose(self.functions, self.wanted, self.expressions)
        except UnknownKernel as error:
            self._plain()
            raise KernelFault(Status.COMPILE_ERROR, f"{error}. {self._inventory()}") from error
        name = name or self.wanted
        named = self._named(name) if name else None
        return named or self._by_symbol(self._plain(), name)

    def _named(self, name: str) -> Attempt | None:
        """Compiled with the snippet that tells the parameters; None if the compiler refuses, for whatever reason."""
        compilation = self._run(self.source + snippet(name), [name])
        if not compilation.ok and not any(ours in compilation.log for ours in _OUR_PLACES):
            raise self._fault(compilation)
        parameters = read_table(compilation.ptx)
        if not compilation.ok or parameters is None:
            return None
        return Attempt(compilation, name, compilation.symbols[name], parameters)

    def _plain(self) -> nvrtc.Compilation:
        """The source as it is, so that the log is about nothing else."""
        compilation = self._run(self.source, [])
        if not compilation.ok:
            raise self._fault(compilation)
        return compilation

    def _fault(self, failed: nvrtc.Compilation) -> KernelFault:
        return KernelFault(Status.COMPILE_ERROR, self._advice(failed.log), failed.log)

    def _by_symbol(self, plain: nvrtc.Compilation, name: str | None) -> Attempt:
        """A kernel asked for by its name in the machine code: `extern "C"` or mangled."""
        symbols = entries(plain.ptx)
        if name is None and len(symbols) == 1:
            name = symbols[0]
        if name is None:
            made = f"; macros make {', '.join(symbols)}: choose one with metadata.kernel_name" if symbols else ""
            raise KernelFault(Status.COMPILE_ERROR, f"no __global__ function found in the source{made}")
        if name in symbols:
            self.notes.append("parameter types are known by size only: the kernel has no unique name in the source")
            return Attempt(plain, name, name, read_entry(plain.ptx, name))
        if any(function.name.partition("<")[0] == name.partition("<")[0] for function in self.functions):
            failed = self._run(self.source, [name])
            raise KernelFault(
                Status.COMPILE_ERROR,
                f"'{name}' does not name one kernel (overloaded, or its template arguments do not fit). "
                f"{self._inventory()} In machine code: {', '.join(symbols) or 'none'}",
                failed.log,
            )
        raise KernelFault(Status.COMPILE_ERROR, f"Kernel '{name}' not found. {self._inventory()}")

    def _run(self, source: str, names: list[str]) -> nvrtc.Compilation:
        first = nvrtc.compile_source(source, self.options, header_shims.stand_ins(), names)
        if first.ok or _HOST_CODE not in first.log or compiler_options.RELAXED in self.options:
            return first
        # nvcc would take unmarked helpers as host code; NVRTC refuses them unless told that they are device code.
        relaxed = [*self.options, compiler_options.RELAXED]
        second = nvrtc.compile_source(source, relaxed, header_shims.stand_ins(), names)
        if not second.ok:
            return first
        self.notes.append("functions marked neither __device__ nor __host__ were compiled as device code")
        return second

    def _advice(self, log: str) -> str:
        if _HOST_CODE in log:
            return (
                "the source does not compile: it holds host code, and a raw CUDA kernel is device code alone. Remove "
                "main() and launch wrappers (the contract's launch replaces them), or send it as torch_cuda"
            )
        missing = re.search(r'cannot open source file "([^"]+)"', log)
        if missing and missing[1].startswith(_TORCHS_FOLDERS):
            return (
                f"the source does not compile: <{missing[1]}> is for host code, and a raw CUDA kernel is device code "
                "alone. Remove it with the functions that use it, or send Python that calls load_inline, as torch_cuda"
            )
        if missing:
            return (
                f"the source does not compile: there is no header <{missing[1]}> for device code here. Remove its "
                "#include, and put what the kernel needs of it into the source"
            )
        first = _ERROR.search(log)
        return f"the source does not compile: {first[0]}" if first else "the source does not compile"

    def _inventory(self) -> str:
        if not self.functions:
            return "The source has no __global__ function."
        return "The source has: " + ", ".join(f.name + ("<…>" if f.template else "") for f in self.functions) + "."

    def _resources(self, attempt: Attempt) -> dict[str, Any]:
        """Of the kernel that is launched, and how many of its blocks one multiprocessor holds."""
        report = ptxas_report.resources(attempt.compilation.log)
        found = next((one for one in report if one["name"] == attempt.symbol), None)
        if found is None:
            return {}
        figures = {figure: found[figure] for figure in found if figure not in ("name", "arch")}
        return figures | {"occupancy": self._occupancy(attempt, found)}

    def _occupancy(self, attempt: Attempt, found: dict[str, Any]) -> dict[str, Any] | None:
        if self.io is None:
            return None
        try:
            launch = geometry(self.io, self.io.scalars(), attempt.dynamic_shared)
        except KernelFault:  # The run says so.
            return None
        shared = found["static_shared_bytes"] + launch.shared
        return occupancy(self.arch, launch.threads, found["registers"], shared)

    def facts(self, attempt: Attempt) -> dict[str, Any]:
        return {
            "compiler": f"nvrtc {nvrtc.version()}",
            "arch": self.arch,
            "options": self.user_options,
            "kernel": attempt.name,
            "kernels": [function.name for function in self.functions],
            "parameters": spell(attempt.parameters),
            **self._resources(attempt),
            "notes": list(dict.fromkeys(self.notes)),
        }


def _text(metadata: dict[str, Any], key: str) -> str | None:
    value = metadata.get(key)
    if value is not None and not isinstance(value, str):
        raise KernelFault(Status.COMPILE_ERROR, f"metadata.{key} is a text")
    return value.strip() or None if value else None


def _texts(metadata: dict[str, Any], key: str) -> list[str]:
    value = metadata.get(key) or []
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise KernelFault(Status.COMPILE_ERROR, f"metadata.{key} is a list of texts")
    return [text.strip() for text in value if text.strip()]


def _with_variant(arch: str) -> str:
    """The arch with its own instructions (wgmma, setmaxnreg, …): the code runs on this very device and no other."""
    supported = nvrtc.supported_archs()
    number = re.sub(r"\D", "", arch)
    if not number or int(number) not in supported:
        known = ", ".join(f"sm_{number}" for number in supported)
        raise KernelFault(Status.UNSUPPORTED, f"this worker's compiler has no code for {arch}; it has {known}")
    return f"{arch}a" if arch in _ARCHS_WITH_VARIANT else arch
