"""Turns an exception from a submission's Python into a KernelFault, with the submission's lines and without ours."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import traceback
from pathlib import Path
from types import TracebackType

import torch

from backends.base import Target
from backends.binary.cuda_toolkit import ARCH_WITHOUT_DEVICE
from backends.languages import registry
from backends.source.build_errors import MAX_CHARS, advice, first_error
from backends.source.incomplete_toolkit import missing_part
from backends.source.module_loader import FILE_NAME
from backends.source.triton_errors import is_rejection, kernel_line, reason_of
from domain.fault import NO_TEMPORARY, KernelFault, exception_chain
from domain.paths import ROOT
from domain.result import Lack, Status
from domain.value import CodecError

NO_DEVICE = "this worker has no GPU"
RUN_ELSEWHERE = "send it to a service whose workers have GPUs (GET /health lists the devices)"

_TEMPORARY = Path("/tmp")
_MESSAGE_CHARS = 2000
_BACKENDS = ROOT / "backends"
_LIBRARIES = frozenset({"site-packages", "dist-packages"})
_TORCH_CUDA = Path(torch.cuda.__file__).parent
BUILD_FAILED = "Error building extension"
_OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cudaErrorMemoryAllocation",
    "ERROR_OUT_OF_MEMORY",
    "_ALLOC_FAILED",  # Of cuBLAS, cuFFT and others.
    "ALLOCATION_FAILED",  # Of cuDNN since version 9.
)
_NO_GPU = (
    "No CUDA GPUs are available",
    "Found no NVIDIA driver",
    "Torch not compiled with CUDA enabled",
    "Cannot get CUDA generator",
    "Cannot access accelerator device when none is available",
    "cannot import name '_cuda_",
    "no CUDA-capable device",
    "NoDevice",
    "NO_DEVICE",
    "CUDA driver version is insufficient",
    "InsufficientDriver",
    "active drivers ([])",
    "libcuda.so",
    "on a CUDA device but torch.cuda.is_available() is False",
    *registry.no_device_signs(),
)
_FOR_CUDA_ONLY = re.compile(
    r"with arguments from the 'CPU' backend.*only available for these backends: \[CUDA\b", re.DOTALL
)
"""An operator, of torch.library too, that has a CUDA implementation and none for host tensors."""
_CALL_FOR_A_LAUNCH = ("triton/runtime/jit.py", "triton/runtime/autotuner.py", "backends/interpreter/launches.py")
"""Files that call a source's function for a grid, a heuristic or a configuration, with the launch's arguments."""
_NO_GRADIENT = "does not require grad"
_NOT_INTERPRETED = "inline_asm_elementwise"
_INTERPRETER_LACKS = re.compile(
    r"'(?:InterpreterBuilder\W+ object has no attribute|InterpretedFunction' object has no attribute '"
    r"(?:cache_key|create_binder|device_caches|preload|src)')"
)
_PROGRAMMING_ERRORS = (NameError, AttributeError, TypeError, ImportError, SyntaxError)
_GPU = r"(?:\bis_cuda\b|\bcuda\b|\bgpu)"
_DEMAND = r"(?:\brequire|\bneed|\bmust\b|\bonly\b|\bexpect|available|\bno\b|\bnot\b|\bwithout\b|\bmissing\b)"
_INSISTS = re.compile(
    rf"torch\.cuda\.|(?:^|[;:]\s*)(?:assert\b.*{_GPU}|raise\b.*(?:{_GPU}.*{_DEMAND}|{_DEMAND}.*{_GPU}))", re.IGNORECASE
)
"""A source's own check for a GPU, also behind `if …:` or another statement of the line. The word alone occurs in many
errors that are the kernel's own."""
_OWN_LINE = re.compile(rf'\b{re.escape(FILE_NAME)}(?:", line |:)(\d+)')
"""How Helion and CuTe DSL name a line of the source in their messages."""
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_COMMENT = re.compile(r"\s#.*$")


class NotInterpreted(NotImplementedError):
    """A function that only a GPU has."""


def fault(
    error: BaseException, doing: str, folder: Path, target: Target, status: Status = Status.RUNTIME_ERROR
) -> KernelFault:
    """The KernelFault for an exception raised while `doing`; its status is `status` unless the exception implies
    another.

    The log is the traceback from the source's first line on, with the compiler's text and with paths relative to the
    folder.
    """
    if isinstance(error, KernelFault) and not _raised_by_source(error):
        return error
    if isinstance(error, CodecError):
        # Our own code raised it, about a value of the submission: the traceback would not help its author.
        message = f"{doing}: a value cannot cross to the referee: {error}"
        return KernelFault(Status.UNSUPPORTED, message, compiled=status is not Status.COMPILE_ERROR)
    log = _readable(error, folder)
    headline = _headline(error, log).replace(f"{folder}/", "")
    compiled = status is not Status.COMPILE_ERROR
    if (part := _operators_part(error, log, folder, target)) is not None:
        message = f"{doing}: {headline}: {part}"
        return KernelFault(Status.UNSUPPORTED, message, log, compiled=compiled, lacks=Lack.PART)
    hints = f"{_build_advice(error, log, folder)}{_temporary_hint(error, folder)}{_launch_hint(error)}"
    message = f"{doing}: {headline}{hints}"
    if not target.is_cuda and _is_beyond_interpreter(error):
        message = f"{NO_DEVICE}, and Triton's interpreter, which takes its place, cannot do this ({message})"
        return KernelFault(Status.UNSUPPORTED, message, log, compiled=compiled, lacks=Lack.GPU)
    if BUILD_FAILED in text_of(error) or is_rejection(error):
        return KernelFault(Status.COMPILE_ERROR, message, log)
    if is_out_of_memory(error):
        return KernelFault(Status.OUT_OF_MEMORY, message, log, compiled=compiled)
    if not target.is_cuda and (asks_for_gpu(error) or registry.may_lack_the_gpu(error)):
        message = f"{NO_DEVICE}, and the source asks for one ({message})"
        return KernelFault(Status.UNSUPPORTED, message, log, compiled=compiled, lacks=Lack.GPU)
    if registry.refused(error):
        return KernelFault(Status.COMPILE_ERROR, message, log)
    return KernelFault(status, message, log, compiled=compiled)


def _is_beyond_interpreter(error: BaseException) -> bool:
    """Whether an interpreted kernel uses a feature that the interpreter lacks or answers with None."""
    links = exception_chain(error)
    if _INTERPRETER_LACKS.search(text_of(error)) or any(isinstance(link, NotInterpreted) for link in links):
        return True
    if type(error).__name__ != "InterpreterError":
        return False
    frames = [frame for link in links for frame, _ in traceback.walk_tb(link.__traceback__)]
    code = [frame.f_code for frame in frames if _is_source(frame.f_code.co_filename)]
    return any(_NOT_INTERPRETED in function.co_names for function in code)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether host or device memory ran out."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    return any(sign in text_of(error) for sign in _OUT_OF_MEMORY)


def asks_for_gpu(error: BaseException) -> bool:
    """Whether a missing GPU caused the exception: by the libraries' messages, or the source's own check.

    In a torch without CUDA, torch.cuda may fail at its first use of any kind.
    """
    for link in exception_chain(error):
        text = text_of(link)
        if any(sign in text for sign in _NO_GPU) or _FOR_CUDA_ONLY.search(text) or _raised_in_torch_cuda(link):
            return True
        line = _raising_line(link)
        raising = (line.line or "")[:MAX_CHARS] if line is not None else ""
        if not isinstance(link, _PROGRAMMING_ERRORS) and _INSISTS.search(_COMMENT.sub("", raising)):
            return True
    return False


def _raised_in_torch_cuda(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return torch.version.cuda is None and bool(frames) and Path(frames[-1].filename).parent == _TORCH_CUDA


def _temporary_hint(error: BaseException, folder: Path) -> str:
    """A hint for a source that was denied a path below /tmp: not every host can give each submission a /tmp."""
    refused = [link for link in exception_chain(error) if isinstance(link, PermissionError | FileNotFoundError)]
    names = [name for link in refused for name in (link.filename, link.filename2)]
    paths = [Path(os.fsdecode(name)) for name in names if isinstance(name, str | bytes)]
    if not any(path.is_relative_to(_TEMPORARY) and not path.is_relative_to(folder) for path in paths):
        return ""
    # With a private /tmp, /tmp is this folder under another name.
    with contextlib.suppress(OSError):
        if os.path.samefile(_TEMPORARY, folder):
            return ""
    return f" ({NO_TEMPORARY})"


def _launch_hint(error: BaseException) -> str:
    """The names of the launch's arguments, where a function for its grid or configuration asked for another."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if type(error) is not KeyError or len(frames) < 2 or not frames[-2].f_code.co_filename.endswith(_CALL_FOR_A_LAUNCH):
        return ""
    if not (error.args and isinstance(error.args[0], str)):
        return ""  # The key is of a table of the source's own, as in `TILES[meta["n"]]`.
    names = next((value for value in frames[-1].f_locals.values() if type(value) is dict), {})
    listed = ", ".join(map(str, names))[:MAX_CHARS]
    return f" (the function gets the kernel's arguments by their names: {listed})"


def gradient_hint(error: BaseException) -> str:
    """A hint for a source that needs gradients, which calls disable."""
    if _NO_GRADIENT not in text_of(error):
        return ""
    return " (calls are made under torch.no_grad(): what needs gradients goes into `with torch.enable_grad():`)"


def reached_source(error: BaseException) -> bool:
    """Whether a line of the source ran before the exception."""
    return any(_is_source(frame.filename) for frame in traceback.extract_tb(error.__traceback__))


def _is_source(path: str) -> bool:
    """Whether that is the submission's file: libraries have files of its name, too."""
    parts = Path(path).parts
    return parts[-1:] == (FILE_NAME,) and not _LIBRARIES.intersection(parts)


def text_of(error: BaseException) -> str:
    """The exception's text. A submission's own exception may fail even there."""
    try:
        return _COLOURS.sub("", str(error))
    except Exception as failure:
        return f"(its text cannot be had: {type(failure).__name__})"


def summary(error: BaseException) -> str:
    """Type and text of an exception, cut at a maximum length."""
    text = f"{type(error).__name__}: {text_of(error)}".rstrip(": ")
    return text if len(text) <= _MESSAGE_CHARS else text[:_MESSAGE_CHARS] + " [...]"


def _headline(error: BaseException, log: str) -> str:
    # torch.compile's own exception, which comes last, does not say what the interpreter lacks.
    error = next((link for link in exception_chain(error) if isinstance(link, NotInterpreted)), error)
    text = text_of(error)
    if is_rejection(error):
        reason = reason_of(text)
        # Without a line of the kernel, that of its launch.
        where = kernel_line(text) or ("" if reason.endswith("`)") else _at(_raising_line(error)))
        return f"{type(error).__name__}: {reason}{where}"
    if BUILD_FAILED not in text:
        refused = registry.refused(error)
        if refused and (own := _OWN_LINE.search(text)):
            reason, _, rest = text.strip().partition("\n")
            own_text = f"{type(error).__name__}: {reason[:MAX_CHARS]} (line {own[1]} of the source)\n{rest}"
            return own_text[:_MESSAGE_CHARS].rstrip()
        line = _raising_line(error) if refused else None
        # A language may quote all the code that it handed to nvcc, before what nvcc says of it.
        first = first_error(text) if refused and len(text) > MAX_CHARS else None
        headline = f"{type(error).__name__}: {first}" if first else summary(error)
        return f"{headline}{_at(line)}"
    name = text.splitlines()[0].partition(":")[0]
    first = first_error(log.partition(BUILD_FAILED)[2])
    return f"{name}: {first}" if first else name


def _at(line: traceback.FrameSummary | None) -> str:
    return f" (line {line.lineno} of the source: `{line.line}`)" if line else ""


def _build_advice(error: BaseException, log: str, folder: Path) -> str:
    """Advice about a failed build, or about an extension that cannot be used, in brackets."""
    text = text_of(error)
    message = (first_error(log.partition(BUILD_FAILED)[2]) or "") if BUILD_FAILED in text else text
    hint = advice(message, log, _source_text(folder))
    return f" ({hint})" if hint else ""


def _operators_part(error: BaseException, log: str, folder: Path, target: Target) -> str | None:
    """Names what the worker lacks and what its operator does; None where only the source may say so."""
    of_build = any(BUILD_FAILED in text_of(link) and not _raised_by_source(link) for link in exception_chain(error))
    # An import that fails is raised at its line.
    if not of_build and _raised_by_source(error) and not isinstance(error, ImportError):
        return None
    if (part := registry.operators_part(error)) is not None:
        return part
    return missing_part(log, target.arch or ARCH_WITHOUT_DEVICE) if of_build or registry.refused(error) else None


def _raised_by_source(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    # Code that a source passes to `exec` is in no file.
    return bool(frames) and (_is_source(frames[-1].filename) or frames[-1].filename.startswith("<"))


def _source_text(folder: Path) -> str:
    """The source as the builder wrote it; empty where it wrote none."""
    with contextlib.suppress(OSError):
        return (folder / FILE_NAME).read_text(encoding="utf-8", errors="replace")
    return ""


def _readable(error: BaseException, folder: Path) -> str:
    own = _from_source(error.__traceback__)
    lines = traceback.format_exception(type(error), error, own)
    return "".join(lines).replace(f"{folder}/", "")


def _from_source(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from its first frame in the source on; without one, from the first frame that is not ours."""
    frames = [trace] if trace is not None else []
    while frames and frames[-1].tb_next is not None:
        frames.append(frames[-1].tb_next)
    files = [Path(frame.tb_frame.f_code.co_filename) for frame in frames]
    first_of_source = (frame for frame, file in zip(frames, files, strict=True) if _is_source(str(file)))
    first_foreign = (frame for frame, file in zip(frames, files, strict=True) if _BACKENDS not in file.parents)
    return next(first_of_source, None) or next(first_foreign, None)


def _raising_line(error: BaseException) -> traceback.FrameSummary | None:
    """The innermost line of the source that the exception passed through."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((frame for frame in frames if _is_source(frame.filename)), None)
