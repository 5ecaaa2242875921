"""NVIDIA's disassembler: machine code as text. It is run on a submission's bytes, so in a builder and nowhere else."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from backends.binary.cuda_toolkit import cuda_home

DISASSEMBLER, EXTRACTOR = "nvdisasm", "cuobjdump"
TOOL_S = 10.0
MAX_CUBINS = 16
"""Of one library."""
_REASON_CHARS = 300


class NoText(Exception):
    """There is no text; the message says why, and what to do."""


def disassembled(cubin: Path, scratch: Path, limit: int) -> str:
    """The code of all functions in a cubin, of which no more than `limit` characters are read.

    `scratch` is a folder that may be written to. Raises NoText.
    """
    with tempfile.TemporaryFile(dir=scratch) as output:
        _run(DISASSEMBLER, ["-c", str(cubin.resolve())], scratch, output.fileno())
        output.seek(0)
        return output.read(limit).decode(errors="replace")


def extracted(library: Path, scratch: Path) -> list[Path]:
    """The cubins in a shared library, as files in the empty folder `scratch`. Raises NoText."""
    with tempfile.TemporaryFile(dir=scratch) as output:
        _run(EXTRACTOR, ["-xelf", "all", str(library.resolve())], scratch, output.fileno())
    return sorted(scratch.glob("*.cubin"))[:MAX_CUBINS]


def _run(name: str, arguments: list[str], folder: Path, output: int) -> None:
    """With the first of these tools that does it: one of an older CUDA does not know a newer card's code."""
    said = ""
    for tool in _tools(name):
        command = [str(tool), *arguments]
        # The one looks for the other there.
        path = os.pathsep.join([str(tool.parent), os.getenv("PATH", os.defpath)])  # noqa: TID251
        environment = {**os.environ, "PATH": path}  # noqa: TID251 - the builder's own, handed on
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, stdout=output, stderr=subprocess.PIPE, timeout=TOOL_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise NoText(f"{name} took more than {TOOL_S:g} s: the kernel's code is too large") from error
        except OSError as error:
            said = said or f"{type(error).__name__}: {error}"
            continue
        if done.returncode == 0:
            return
        said = said or done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
    if said:
        raise NoText(f"{name} did not read the machine code: {said[:_REASON_CHARS]}")
    raise NoText(
        f"this worker has no {name}: it comes with the CUDA toolkit (CUDA_HOME, PATH) and with Triton's package; the "
        "operator has to install one of them"
    )


def _tools(name: str) -> Iterator[Path]:
    """Where it may be: in the toolkit, on the path, in Triton's package."""
    home = cuda_home()
    places = [home / "bin"] if home is not None else []
    if (found := shutil.which(name)) is not None:
        places.append(Path(found).parent)
    triton = importlib.util.find_spec("triton")
    if triton is not None and triton.origin is not None:
        places.append(Path(triton.origin).parent / "backends" / "nvidia" / "bin")
    for place in dict.fromkeys(places):
        if os.access(place / name, os.X_OK):
            yield place / name
