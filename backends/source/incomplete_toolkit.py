"""Tells from a compiler's output that the worker's toolkit is incomplete: its operator mends that, no source.

A source can have a compiler print any text, as a `static_assert` does: the text is a hint, and a trial decides.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sysconfig
import tempfile
from contextlib import suppress
from pathlib import Path

import torch

from backends.binary.cuda_toolkit import cuda_home, named_home, with_features
from domain.fault import OPERATORS_PART

_ADVICE = f"{OPERATORS_PART} takes a base image with a whole toolkit that fits (WORKER_BASE)"
_OWN = (
    *("", "_awbarrier", "_awbarrier_primitives", "_bf16", "_device_runtime_api", "_fp16", "_fp4", "_fp6", "_fp8"),
    *("_occupancy", "_pipeline", "_pipeline_primitives", "_profiler_api", "_runtime", "_runtime_api"),
)
_HEADERS = frozenset({*(f"cuda{part}.h" for part in _OWN), "math_constants.h", "mma.h", "vector_types.h"})
_FOLDERS = ("cooperative_groups", "crt", "cub", "cuda", "nv", "thrust")
_OF_LIBRARIES = re.compile(
    r"(?:cooperative_groups|cublas(?:_v2|_api|Lt|Xt)?|cudnn(?:_(?:adv|backend|cnn|graph|ops|version)\w*)?|cufft(?:Xt|w)?"
    r"|curand(?:_kernel)?|cusolver(?:Dn|Mg|Rf|Sp|_common)?|cusparse(?:_v2|Lt)?|nccl|nvrtc)\.h"
)
_LIBRARIES = frozenset(
    {"cublas", "cublasLt", "cuda", "cudadevrt", "cudart", "cudart_static", "cudnn", "cufft", "curand", "cusolver"}
    | {"cusparse", "nvrtc"}
)
PROBE_S = 30.0
"""Maximum seconds of compiling a file of a few lines."""
_CUTLASS = ("cutlass/", "cute/")
_TORCHS = ("ATen/cuda/", "c10/cuda/", "torch/csrc/cuda/")
_PROGRAM = r"(?:nvcc|cicc|ptxas|cudafe\+\+|fatbinary|nvlink|c\+\+|g\+\+|gcc|cc1plus|as|ld)"

_SYSTEMS = re.compile(
    r"(?!.*/(?:site|dist)-packages/(?!nvidia/))(?:/usr/|.*/cuda[\w.-]*/(?:.+/)?include/|.*/(?:site|dist)-packages/)"
)
"""In the path of a file of the system's or of a toolkit's. Other packages' files may include what their users bring, or
another platform: over a thousand of torch's do."""
_MISSING_HEADER = re.compile(r"^(\S+?):\d+:\d+: fatal error: (\S+): No such file", re.MULTILINE)
_MISSING_LIBRARY = re.compile(r"^\S*ld: cannot find -l(\w+)", re.MULTILINE)
_INCOMPLETE = "this worker's CUDA toolkit is incomplete ({} is missing)"
_OF_TOOLS = {
    rf"^(?:/bin/)?sh: (?:\d+: |line \d+: )?(\S*\b{_PROGRAM}): (?:command )?not found": _INCOMPLETE,
    rf"^(?:\S+: )?fatal error: cannot execute .({_PROGRAM})\W": _INCOMPLETE,
    rf"No such file or directory: '(\S*/{_PROGRAM})'": _INCOMPLETE,
    r"^nvcc fatal\s*: (?:Cannot find compiler|Compiler) '([^']+)'": _INCOMPLETE,
    r"^(?:\S*host_config\.h\b.*|nvcc fatal\s*: )(unsupported GNU version!|Host compiler targets unsupported OS"
    r"|Failed to preprocess host compiler properties)": "this worker's C++ compiler does not fit its CUDA toolkit ({})",
    r"^nvcc fatal\s*: Unsupported gpu architecture '(\w+)'": "this worker's CUDA toolkit does not know its GPU ({})",
}
"""Patterns of compilers' messages about tools that are missing or do not fit, each with its meaning if that is true."""


def missing_part(text: str, arch: str) -> str | None:
    """Names what the compiler that wrote `text` lacks and what the operator does; None if the source may be at fault.

    A header is the operator's part if the system or a toolkit includes it. So is one of a part of CUDA, torch, CUTLASS
    or Python that is not there. A tool is, if a file without content does not compile for `arch` either.
    """
    files = _MISSING_HEADER.findall(text)
    headers = (name for includer, name in files if _of_the_system(includer, name) or _of_a_missing_part(name))
    if header := next(headers, ""):
        if header.startswith(_CUTLASS):
            return f"this worker has no CUTLASS ({header}): {OPERATORS_PART} installs the package nvidia-cutlass"
        if header.startswith(_TORCHS):
            return f"this worker's torch has no CUDA part ({header} is missing): send it to a service with GPUs"
        return f"{_INCOMPLETE.format(header)}: {_ADVICE}"
    home = cuda_home()
    for library in _MISSING_LIBRARY.findall(text):
        if library in _LIBRARIES and not _tried("c++", "-shared", f"-L{home}/lib64", f"-l{library}")[0]:
            return f"{_INCOMPLETE.format(f'lib{library}')}: {_ADVICE}"
    tools = ((re.search(pattern, text, re.MULTILINE), means) for pattern, means in _OF_TOOLS.items())
    part = next((means.format(found[1]) for found, means in tools if found), None)
    nvcc = (f"{named_home()}/bin/nvcc", f"-arch={with_features(arch)}", "-c", "-x", "cu", "/dev/null")
    return None if part is None or _tried(*nvcc)[0] else f"{part}: {_ADVICE}"


def _of_the_system(includer: str, header: str) -> bool:
    """Whether such a file includes that header on this platform, and the preprocessor does not find it."""
    # A source can name any file by #line: not every name is one that a system takes.
    if not (os.path.isfile(includer) and _SYSTEMS.match(includer)):
        return False
    file = Path(includer)
    places = (*file.parents, f"{cuda_home()}/include")
    # -MG lists headers that are not found by their bare names.
    listing = ("c++", "-M", "-MG", "-x", "c++", *(f"-I{place}" for place in places))
    return any(header in _tried(*listing, *macro, str(file))[1].split() for macro in ((), ("-D__CUDACC__",)))


def _tried(*command: str) -> tuple[bool, str]:
    """Whether a compiler does that here (its tools are there, and go together), and what it lists, errors or not."""
    with suppress(OSError, subprocess.TimeoutExpired), tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=PROBE_S)
        return done.returncode == 0, done.stdout.decode(errors="replace")
    return False, ""


def _of_a_missing_part(header: str) -> bool:
    """Whether that header is CUDA's, torch's, CUTLASS's or Python's, and the worker lacks all that it belongs to.

    A header of the source's own may lie in a folder `cuda` too, and a source may name one that CUTLASS never had.
    """
    if header.startswith(_CUTLASS):
        return importlib.util.find_spec("cutlass_library") is None
    if header.startswith(_TORCHS):
        return torch.version.cuda is None
    if header == "Python.h":
        return not Path(sysconfig.get_path("include"), header).exists()
    part = header.split("/")[0]
    if not (header in _HEADERS or _OF_LIBRARIES.fullmatch(header) or (part in _FOLDERS and part != header)):
        return False
    home = cuda_home()
    return home is None or not any((home / place / part).exists() for place in ("include", "include/cccl"))
