"""Runs NVIDIA's disassembler, machine code to text. It parses a submission's bytes, so it runs only in a builder."""

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
"""Maximum number of cubins that are read from one library."""
_REASON_CHARS = 300


class NoText(Exception):
    """There is no text; the message says why, and what to do."""


def disassemble(cubin: Path, scratch: Path, limit: int) -> str:
    """The code of all functions in a cubin, read up to `limit` characters.

    `scratch` is a writable folder. Raises NoText.
    """
    with tempfile.TemporaryFile(dir=scratch) as output:
        _run(DISASSEMBLER, ["-c", str(cubin.resolve())], scratch, output.fileno())
        output.seek(0)
        return output.read(limit).decode(errors="replace")


def extract_cubins(library: Path, scratch: Path) -> list[Path]:
    """The cubins in a shared library, as files in the empty folder `scratch`. Raises NoText."""
    with tempfile.TemporaryFile(dir=scratch) as output:
        _run(EXTRACTOR, ["-xelf", "all", str(library.resolve())], scratch, output.fileno())
    return sorted(scratch.glob("*.cubin"))[:MAX_CUBINS]


def _run(name: str, arguments: list[str], folder: Path, output: int) -> None:
    """Runs the first of these tools that succeeds: one from an older CUDA does not know a newer GPU's code."""
    failure = ""
    for tool in _tools(name):
        command = [str(tool), *arguments]
        # Each tool looks for the other in that folder.
        path = os.pathsep.join([str(tool.parent), os.getenv("PATH", os.defpath)])  # noqa: TID251
        environment = {**os.environ, "PATH": path}  # noqa: TID251 - the builder's own, handed on
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, stdout=output, stderr=subprocess.PIPE, timeout=TOOL_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise NoText(f"{name} took more than {TOOL_S:g} s: the kernel's code is too large") from error
        except OSError as error:
            failure = failure or f"{type(error).__name__}: {error}"
            continue
        if done.returncode == 0:
            return
        failure = failure or done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
    if failure:
        raise NoText(f"{name} did not read the machine code: {failure[:_REASON_CHARS]}")
    raise NoText(
        f"this worker has no {name}: it comes with the CUDA toolkit (CUDA_HOME, PATH) and with Triton's package; the "
        "operator has to install one of them"
    )


def _tools(name: str) -> Iterator[Path]:
    """Candidates for the tool: in the toolkit, on the path, in Triton's package."""
    home = cuda_home()
    folders = [home / "bin"] if home is not None else []
    if (on_path := shutil.which(name)) is not None:
        folders.append(Path(on_path).parent)
    triton = importlib.util.find_spec("triton")
    if triton is not None and triton.origin is not None:
        folders.append(Path(triton.origin).parent / "backends" / "nvidia" / "bin")
    for folder in dict.fromkeys(folders):
        if os.access(folder / name, os.X_OK):
            yield folder / name
