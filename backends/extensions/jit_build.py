"""Torch's just-in-time extensions inside a job: where and for which architecture they are built, and the compiler's
log.

A source calls `load_inline` or `load` as usual. In the builder the call compiles into the job folder; in the runner the
same call loads the compiled library. On a worker without a GPU, CUDA sources are compiled where the toolchain allows,
to find compile errors, and are not run.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils import cpp_extension

from backends.base import Target
from backends.binary.cuda_toolkit import ARCH_WITHOUT_DEVICE, cuda_home, with_features
from backends.extensions.compiler_driver import NOTE, RESOURCES
from backends.extensions.index import BuiltExtensions
from backends.source.error_report import BUILD_FAILED, NO_DEVICE, RUN_ELSEWHERE
from domain.fault import KernelFault, may_pass_again
from domain.result import Lack, Status

FOLDER = "ext"
MAX_JOBS = 8
MAX_KERNELS = 32
"""Maximum number of kernels whose resources are reported."""

_LINE_OPTIONS = frozenset({"-lineinfo", "--generate-line-info", "-G", "--device-debug"})
"""Options of nvcc that exclude each other; -lineinfo is added only where none of them is present."""
CUDA_LIBRARIES = ("c10_cuda", "torch_cuda")

# Computed at import, and so in the zygote: each runner would otherwise spend a millisecond of its job's time on it.
_STOCK: dict[str, Callable[..., Any]] = {name: getattr(cpp_extension, name) for name in ("load", "load_inline")}
_SIGNATURES = {stock: inspect.signature(stock) for stock in _STOCK.values()}
_ARCH = re.compile(r"sm_(\d+)(\d)(a?)")


class ExtensionCalled(BaseException):
    """An extension's function was called that was only built. No `except Exception` of a source catches it."""


class Extensions:
    """The extensions that one job's source builds: their names, those only compiled, and the compilers' output.

    `compiled` names the extensions that were not built beforehand, `not_built` those whose last build failed. With
    `build_ahead`, which performs the build of an extension by its name, calls only build and return a stand-in.
    """

    def __init__(self, folder: Path, target: Target) -> None:
        self.folder = folder
        self.target = target
        self.built: list[str] = []
        self.only_compiled: list[str] = []
        self.compiled: list[str] = []
        self.not_built: set[str] = set()
        self.build_ahead: Callable[[str, Callable[[], Any]], Any] | None = None
        self.log = ""
        self._built = BuiltExtensions(folder / FOLDER)

    @property
    def headers(self) -> list[str]:
        """The headers that each file was compiled with (backends.extensions.compiler_driver), and why not the lean
        ones."""
        notes = sorted((self.folder / FOLDER).glob(f"*/*{NOTE}"))
        return [f"{note.name.removesuffix(NOTE)}: {note.read_text(encoding='utf-8')}" for note in notes]

    @property
    def kernels(self) -> list[dict[str, Any]]:
        """Resources of the extensions' kernels, from the assembler's report."""
        notes = sorted((self.folder / FOLDER).glob(f"*/*{RESOURCES}"))
        resources: list[dict[str, Any]] = []
        for note in notes:
            with suppress(OSError, ValueError):
                resources += json.loads(note.read_text(encoding="utf-8"))
        return resources[:MAX_KERNELS]

    def files(self) -> dict[str, Path]:
        """The library of each extension that is built, by the key of its call."""
        return self._built.files()

    def require_device(self) -> None:
        """Raises KernelFault (UNSUPPORTED, compiled) if something was compiled that cannot run on this worker."""
        if self.only_compiled and not self.target.is_cuda:
            raise _not_run(self.only_compiled, self.log)

    def builder(self, stock: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps `load` or `load_inline`: captures the compiler's output and loads what was built before."""
        signature = _SIGNATURES[stock]

        @functools.wraps(stock)
        def build(*args: Any, **kwargs: Any) -> Any:
            call = signature.bind(*args, **kwargs)
            _with_lines(call.arguments)
            key, name = self._built.key(stock.__name__, call.arguments), str(call.arguments["name"])
            if self.build_ahead is not None:
                if key is not None and key not in self.files() and name not in self.only_compiled:
                    build_ahead, self.build_ahead = self.build_ahead, None
                    try:
                        build_ahead(name, functools.partial(build, *args, **kwargs))
                    except RuntimeError as error:
                        message = str(error)
                        if BUILD_FAILED in message and not may_pass_again(message):
                            self._built.refuse(key, message)
                        raise
                    finally:
                        self.build_ahead = build_ahead
                return _StandIn(name, functools.partial(ExtensionCalled, f"extension {name} is called"))
            self.not_built.add(name)  # A source may catch what the next line raises, and go on.
            extension = self._extension(stock, call, key, name)
            self.not_built.discard(name)
            return extension

        return build

    def _extension(self, stock: Callable[..., Any], call: inspect.BoundArguments, key: str | None, name: str) -> Any:
        """What the call returns: the extension, or a stand-in for one that cannot run on this worker."""
        if _wants_cuda(call.arguments) and (not self.target.is_cuda or torch.version.cuda is None):
            return self._compile_only(stock, call)
        if (refusal := self._built.refusal(key)) is not None:
            raise RuntimeError(refusal)
        extension = self._built.load(key)
        if extension is None:
            if name not in self.compiled:
                self.compiled.append(name)
            with self._console():
                extension = stock(*call.args, **call.kwargs)
            self._built.add(key, extension)
        self.built.append(name)
        return extension

    def _compile_only(self, stock: Callable[..., Any], call: inspect.BoundArguments) -> ModuleType:
        """Runs the stock build against a torch without CUDA; the resulting library is not used."""
        home = cuda_home()
        if home is None:
            raise KernelFault(
                Status.UNSUPPORTED, f"not compiled: {NO_DEVICE} and no CUDA compiler (nvcc)", lacks=Lack.GPU
            )
        cpp_extension.CUDA_HOME = str(home)
        arguments = call.arguments
        for flags in ("extra_cflags", "extra_cuda_cflags"):
            # torch's CUDA headers exist here, but not the file that its CMake would have generated.
            arguments[flags] = [*(arguments.get(flags) or []), "-DC10_CUDA_NO_CMAKE_CONFIGURE_FILE"]
        arguments["extra_ldflags"] = [*(arguments.get("extra_ldflags") or []), f"-L{self._stand_ins()}"]
        try:
            with self._console():
                stock(*call.args, **call.kwargs)
        except ImportError:
            pass  # Built and linked; a library that it links against is missing here.
        except OSError as error:
            if ".so" not in str(error):  # A missing .so means the same for a library that is no Python module.
                raise
        name = str(arguments["name"])
        self.only_compiled.append(name)
        return _StandIn(name, functools.partial(_not_run, [name]))

    def _stand_ins(self) -> Path:
        """A folder of linker scripts that name torch's CPU library in place of its CUDA ones."""
        folder = self.folder / FOLDER / ".stand-ins"
        folder.mkdir(parents=True, exist_ok=True)
        for name in CUDA_LIBRARIES:
            (folder / f"lib{name}.so").write_text("INPUT(-lc10)\n")
        return folder

    @contextmanager
    def _console(self) -> Iterator[None]:
        """Captures what ninja writes to descriptor 1 when a source asks for `verbose`; errors carry it as a note."""
        sys.stdout.flush()
        standard_output = os.dup(1)
        with tempfile.TemporaryFile(dir=self.folder) as console:

            def written() -> str:
                console.seek(0)
                return console.read().decode(errors="replace")

            os.dup2(console.fileno(), 1)
            try:
                yield
            except Exception as error:
                if text := written():
                    error.add_note(text)
                raise
            finally:
                sys.stdout.flush()
                os.dup2(standard_output, 1)
                os.close(standard_output)
                self.log += written()


def install(folder: Path, target: Target) -> Extensions:
    """Prepares this process, which serves one submission, to build extensions in `folder` for `target`."""
    variables = {
        "TORCH_EXTENSIONS_DIR": str(folder / FOLDER),
        "TORCH_CUDA_ARCH_LIST": torch_arch(with_features(target.arch or ARCH_WITHOUT_DEVICE)),
        "MAX_JOBS": str(min(len(os.sched_getaffinity(0)), MAX_JOBS)),
        # ninja comes with the interpreter's environment, which need not be on the path.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.getenv("PATH", os.defpath)]),  # noqa: TID251
    }
    drivers = Path(target.toolchain or "", "bin")
    reached = os.access(drivers / "c++", os.X_OK)
    if reached:
        variables["CXX"] = str(drivers / "c++")
        if (drivers / "nvcc").exists():
            variables["PYTORCH_NVCC"] = str(drivers / "nvcc")
    os.environ.update(variables)  # noqa: TID251 - torch.utils.cpp_extension reads its options there, now or in forward()
    extensions = Extensions(folder, target)
    if target.toolchain is not None and not reached:
        extensions.log = "the service's compilers cannot be reached from here: extensions are built the stock way\n"
    for name, stock in _STOCK.items():
        setattr(cpp_extension, name, extensions.builder(stock))
    return extensions


def torch_arch(arch: str) -> str:
    """TORCH_CUDA_ARCH_LIST's form: "9.0" for "sm_90", "10.0a" for "sm_100a"."""
    match = _ARCH.fullmatch(arch)
    if match is None:
        raise ValueError(f"not an architecture: {arch!r}")
    return f"{match[1]}.{match[2]}{match[3]}"


def _with_lines(arguments: dict[str, Any]) -> None:
    """Adds line numbers to device code for the sanitizer and the profiler; changes no code."""
    flags = list(arguments.get("extra_cuda_cflags") or [])
    if _wants_cuda(arguments) and not _LINE_OPTIONS.intersection(flags):
        arguments["extra_cuda_cflags"] = [*flags, "-lineinfo"]


class _StandIn(ModuleType):
    """Replaces an extension that cannot be loaded or must not be used; every function of it raises `make_error()`."""

    def __init__(self, name: str, make_error: Callable[[], BaseException]) -> None:
        super().__init__(name)
        self._make_error = make_error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise self._make_error()

        return refuse


def _not_run(names: list[str], log: str = "") -> KernelFault:
    message = f"compiled but not run: {NO_DEVICE} (extension {', '.join(names)}); {RUN_ELSEWHERE}"
    return KernelFault(Status.UNSUPPORTED, message, log, compiled=True, lacks=Lack.GPU)


def _wants_cuda(arguments: dict[str, Any]) -> bool:
    sources = arguments.get("sources") or []
    paths = [sources] if isinstance(sources, str) else list(sources)
    by_name = any(str(path).endswith((".cu", ".cuh")) for path in paths)
    return bool(arguments.get("cuda_sources") or arguments.get("with_cuda") or by_name)
