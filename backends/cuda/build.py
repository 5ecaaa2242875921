"""Compiles one CUDA source: chooses the kernel and the options, and reads the kernel's parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from backends.binary import cubin, ptxas_report
from backends.binary.cuda_toolkit import with_features
from backends.binary.occupancy import occupancy
from backends.cuda import compiler_options, header_shims, nvrtc
from backends.cuda.entry_selection import UnknownKernel, choose
from backends.cuda.headers import include_folders
from backends.cuda.launch_geometry import geometry
from backends.cuda.signature import SNIPPET_NAME, Parameter, entries, read_entry, read_table, snippet, spell
from backends.cuda.source_scan import global_functions, host_functions, visible_code
from backends.source.build_errors import first_error, of_cuda
from backends.source.entry_point import metadata_text
from domain.fault import KernelFault
from domain.kernel import Kernel
from domain.result import Lack, Status

_HOST_CODE = "not allowed in JIT mode"
_TORCHS_FOLDERS = ("torch/", "ATen/", "c10/", "pybind11/", "Python.h")
_HOST_LINE = re.compile(r"\((\d+)\): error: .*" + _HOST_CODE)
_WITH_LINES = "-lineinfo"
"""Adds line numbers for sanitizer and profiler; changes no code."""
_NO_CACHE = "--no-cache"
"""Disables NVRTC's cache, which would skip the assembler's report. Builds are cached elsewhere."""
_SNIPPET_MARKERS = (SNIPPET_NAME, "__ke_", "__nv_name_map")
"""Strings in the log that mark an error in the snippet that the builder appends, not in the source."""

_UNUSED_METADATA = ("jitify", "include_dirs", "libraries", "extra_ldflags", "extra_cuda_cflags")


@dataclass(frozen=True)
class Attempt:
    """One successful compilation: the kernel it is for, and the kernel's parameters."""

    compilation: nvrtc.Compilation
    name: str
    symbol: str
    parameters: list[Parameter]

    @property
    def warnings(self) -> str:
        """The log without the assembler's report, which the facts hold."""
        return ptxas_report.strip_report(self.compilation.log).strip()

    @property
    def cooperative(self) -> bool:
        """Whether the kernel syncs its whole grid: it then reads these registers, which only a cooperative launch
        fills."""
        return "%envreg" in self.compilation.ptx

    @property
    def dynamic_shared(self) -> bool:
        return re.search(r"\.extern\s+\.shared\b", self.compilation.ptx) is not None

    @property
    def device_runtime(self) -> bool:
        """Whether it calls functions of the driver (malloc, printf, assert), whose memory outlives the module."""
        return re.search(r"\.extern\b(?!\s+\.shared\b)", self.compilation.ptx) is not None


class Build:
    """One source and its options; `notes` are sentences for the submission's author."""

    def __init__(self, kernel: Kernel, arch: str) -> None:
        metadata = kernel.metadata
        self.source = kernel.source_code.removeprefix("\ufeff")  # Drop an editor's byte order mark: NVRTC rejects it.
        self.io = kernel.io
        self.kernel_name = metadata_text(kernel, "kernel_name")
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
            _NO_CACHE,
            f"--pre-include={header_shims.PRELUDE}",
            "--diag-suppress=47",  # A source or header may define the prelude's macros again.
            *(f"-I{path}" for path in include_folders()),
            *(["-D__KE_OWN_INTEGERS"] if header_shims.defines_integer_types(visible_code(self.source)) else []),
            *(option for option in self.user_options if option != _WITH_LINES),
        ]

    def compile(self) -> Attempt:
        """Compiles the chosen kernel. Raises KernelFault (compile_error) with the compiler's log or a list of the
        kernels."""
        try:
            name = choose(self.functions, self.kernel_name, self.expressions)
        except UnknownKernel as error:
            self._plain()
            raise KernelFault(Status.COMPILE_ERROR, f"{error}. {self._inventory()}") from error
        name = name or self.kernel_name
        attempt = (self._named(name) if name else None) or self._by_symbol(self._plain(), name)
        _check_machine_code(attempt)
        return attempt

    def _named(self, name: str) -> Attempt | None:
        """Compiles with the snippet that reports the parameters; None if the compiler rejects the snippet."""
        compilation = self._run(self.source + snippet(name), [name])
        if not compilation.ok and not any(marker in compilation.log for marker in _SNIPPET_MARKERS):
            raise self._fault(compilation)
        parameters = read_table(compilation.ptx)
        if not compilation.ok or parameters is None:
            return None
        return Attempt(compilation, name, compilation.symbols[name], parameters)

    def _plain(self) -> nvrtc.Compilation:
        """Compiles the source unchanged, so that the log concerns nothing else."""
        compilation = self._run(self.source, [])
        if not compilation.ok:
            raise self._fault(compilation)
        return compilation

    def _fault(self, failed: nvrtc.Compilation) -> KernelFault:
        return KernelFault(Status.COMPILE_ERROR, self._advice(failed.log), failed.log)

    def _by_symbol(self, plain: nvrtc.Compilation, name: str | None) -> Attempt:
        """Finds a kernel by its name in the machine code: `extern "C"` or mangled."""
        symbols = entries(plain.ptx)
        if name is None and len(symbols) == 1:
            name = symbols[0]
        if name is None:
            hint = f"; macros make {', '.join(symbols)}: choose one with metadata.kernel_name" if symbols else ""
            raise KernelFault(Status.COMPILE_ERROR, f"no __global__ function found in the source{hint}")
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
        # nvcc takes unmarked helpers for host code; NVRTC needs an option to accept them as device code.
        relaxed = [*self.options, compiler_options.RELAXED]
        second = nvrtc.compile_source(source, relaxed, header_shims.stand_ins(), names)
        if not second.ok:
            return first
        self.notes.append("functions marked neither __device__ nor __host__ were compiled as device code")
        return second

    def _advice(self, log: str) -> str:
        if self.source.lstrip().startswith("```"):
            return "the source does not compile: a line of ``` is Markdown's: send the code between them"
        if _HOST_CODE in log:
            return f"the source does not compile: it holds host code{self._host_line(log)}. {self._host_advice()}"
        missing = re.search(r'cannot open source file "([^"]+)"', log)
        if missing and missing[1].startswith(_TORCHS_FOLDERS):
            return (
                f"the source does not compile: <{missing[1]}> is a header of torch: send the file with kernel_type "
                "torch_cuda"
            )
        if missing:
            return (
                f"the source does not compile: there is no header <{missing[1]}> for device code here. Remove its "
                f"#include, and put what the kernel needs of it into the source. {self._host_advice()}"
            )
        first = first_error(log)
        hint = of_cuda(first) if first else None
        return f"the source does not compile{f': {first}' if first else ''}{f' ({hint})' if hint else ''}"

    def _host_advice(self) -> str:
        """Advice about host code: which part to send, or how to declare it."""
        names = list(host_functions(self.source))
        if not names:
            return (
                'Send the __global__ function alone, or declare one extern "C" function that takes the contract\'s '
                "arguments and launches it, and name that in metadata.entry_point"
            )
        return (
            "Send the __global__ function alone, or name the host function that launches it in metadata.entry_point "
            f"(the source has {', '.join(names)})"
        )

    def _host_line(self, log: str) -> str:
        """The first line of host code, in brackets; empty where a #line directive numbers the lines otherwise."""
        number = int(match[1]) if (match := _HOST_LINE.search(log)) else 0
        lines = self.source.splitlines()
        return f" (line {number}: `{lines[number - 1].strip()[:80]}`)" if 0 < number <= len(lines) else ""

    def _inventory(self) -> str:
        if not self.functions:
            return "The source has no __global__ function."
        return "The source has: " + ", ".join(f.name + ("<…>" if f.template else "") for f in self.functions) + "."

    def _resources(self, attempt: Attempt) -> dict[str, Any]:
        """Resources of the launched kernel, and how many of its blocks fit on one multiprocessor."""
        report = ptxas_report.resources(attempt.compilation.log)
        resources = next((entry for entry in report if entry["name"] == attempt.symbol), None)
        if resources is None:
            return {}
        figures = {figure: resources[figure] for figure in resources if figure not in ("name", "arch")}
        return figures | {"occupancy": self._occupancy(attempt, resources)}

    def _occupancy(self, attempt: Attempt, resources: dict[str, Any]) -> dict[str, Any] | None:
        if self.io is None:
            return None
        try:
            launch = geometry(self.io, self.io.scalars(), attempt.dynamic_shared)
        except KernelFault:  # The run reports it.
            return None
        shared = resources["static_shared_bytes"] + launch.shared
        return occupancy(self.arch, launch.threads, resources["registers"], shared)

    def facts(self, attempt: Attempt) -> dict[str, Any]:
        """Facts about the build for the result, JSON-ready."""
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


def _check_machine_code(attempt: Attempt) -> None:
    """Raises KernelFault (compile_error) where a launch would read other bytes than those of the parameters.

    Macros and assembler text of the source can change what the compiler writes into the PTX. They cannot change the
    notes of the machine code, which the driver follows.
    """
    log = attempt.compilation.log
    try:
        kernels = cubin.kernels(attempt.compilation.cubin, limit=cubin.MAX_SECTIONS)
    except ValueError as error:
        raise KernelFault(Status.COMPILE_ERROR, f"the machine code cannot be read: {error}", log) from error
    parameter_bytes = next((each.parameter_bytes for each in kernels if each.name == attempt.symbol), None)
    if parameter_bytes != dict(enumerate(parameter.size for parameter in attempt.parameters)):
        raise KernelFault(
            Status.COMPILE_ERROR,
            f"the machine code has no kernel '{attempt.name}' with the parameters {spell(attempt.parameters)}: the "
            "source changes what the compiler tells of it (names that begin with __ke_, or .entry in asm)",
            log,
        )


def _texts(metadata: dict[str, Any], key: str) -> list[str]:
    value = metadata.get(key) or []
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise KernelFault(Status.COMPILE_ERROR, f"metadata.{key} is a list of texts")
    return [text.strip() for text in value if text.strip()]


def _with_variant(arch: str) -> str:
    """The arch with its specific instructions (wgmma, setmaxnreg, …): such code runs on this architecture only."""
    supported = nvrtc.supported_archs()
    number = re.sub(r"\D", "", arch)
    if not number or int(number) not in supported:
        available = ", ".join(f"sm_{number}" for number in supported)
        message = f"this worker's compiler has no code for {arch}; it has {available}"
        raise KernelFault(Status.UNSUPPORTED, message, lacks=Lack.PART)
    return with_features(arch)
