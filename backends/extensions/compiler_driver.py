"""The compiler driver for a submission's extensions: the stock command, with lean headers where these suffice.

Runs as `c++` and `nvcc` from a toolchain's folder (`backends.extensions.toolchain`), in the submission's own process
and with no more rights than the submission. Where the lean headers fail, the driver runs the stock command and passes
on its text and exit status. A note beside the object records which headers were used.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from backends.binary import ptxas_report
from backends.extensions import minimal_tensor
from backends.extensions.include_scan import includes_for, named_in
from backends.extensions.minimal_headers import HOST, NAMED
from backends.extensions.nvcc_steps import Steps, UnknownSteps, exit_status, signal_line
from backends.extensions.pch import INCLUDED, variant

NOTE = ".headers"
"""Suffix of the file beside an object that records which headers were used."""
RESOURCES = ".resources"
"""Suffix of the file beside an object that lists its kernels' resources, as JSON."""
PTX = ".ptx"
"""Suffix of the file beside an object with its device code as PTX; the object itself has PTX only with a certain
flag."""
MAX_PTX_BYTES = 4 << 20
"""Maximum bytes of PTX that are stored for one source; the rest is cut."""

STOCK, LEAN, PRECOMPILED = "stock", "lean", "lean, precompiled"
_PCH_WARNING = "-Winvalid-pch"
"""Makes g++ warn when a precompiled header does not suit the flags or macros; g++ then parses the header itself."""

_ERROR = re.compile(r"^.*\berror\b.*$", re.MULTILINE)
_SOURCES = (".cpp", ".cc", ".cxx", ".cu")


class NotLean(Exception):
    """The lean headers do not suit this source, or it does not compile with them; the text says why."""


def main(tool: str, toolchain: Path, arguments: list[str]) -> int:
    """Compiles, and returns the exit status."""
    config = json.loads((toolchain / "toolchain.json").read_text(encoding="utf-8"))
    source, target = _source(arguments), _target(arguments)
    if source is None or target is None:
        status = subprocess.run([config[tool], *arguments], check=False).returncode
        sys.stderr.write(signal_line(config[tool], status))
        return exit_status(status)
    note = Path(f"{target}{NOTE}")
    if tool == "nvcc":
        arguments = [*arguments, ptxas_report.VERBOSE]
    try:
        used, text = _lean(tool, toolchain, config, source, target, arguments)
        status = 0
    except (NotLean, OSError) as reason:
        used = f"{STOCK} ({reason})"
        command = [config[tool], *arguments]
        status, text = compile_in_steps(command, target) if tool == "nvcc" else _run(command)
    note.write_text(used, encoding="utf-8")
    if tool == "nvcc":
        Path(f"{target}{RESOURCES}").write_text(json.dumps(ptxas_report.resources(text)), encoding="utf-8")
    sys.stderr.write(ptxas_report.strip_report(text))
    return exit_status(status)


def _lean(
    tool: str, toolchain: Path, config: dict[str, str], source: Path, target: Path, arguments: list[str]
) -> tuple[str, str]:
    """Returns which headers were used and the compiler's output. Raises NotLean."""
    headers = toolchain / "include"
    needed = includes_for(source, _folders(arguments), headers, Path(config["torch_include"]))
    if needed is None:
        raise NotLean("the source does not include torch's umbrella header, or needs all of it")
    # The folder stays: make and ninja record it as one of the object's sources.
    named = Path(f"{target}.named").absolute()
    named.mkdir(exist_ok=True)
    (named / NAMED).write_text("".join(f"#include <{name}>\n" for name in needed), encoding="utf-8")
    folders = [f"-I{named}", f"-I{headers}"]
    if tool == "nvcc":
        methods = minimal_tensor.methods(named_in(source, _folders(arguments), Path(config["torch_include"])))
        (named / minimal_tensor.METHODS).write_text(methods, encoding="utf-8")
        return LEAN, _compiled(*compile_in_steps([config[tool], *folders, *arguments], target))
    precompiled = toolchain / "pch" / variant(arguments)
    ahead = [f"-I{precompiled}"] if (precompiled / f"{INCLUDED}.gch").is_file() else []
    forced = [f"-D{HOST}", _PCH_WARNING, *ahead, *folders, "-include", INCLUDED, "-include", NAMED]
    status, text = _run([config[tool], *forced, *arguments])
    return PRECOMPILED if ahead and _PCH_WARNING not in text else LEAN, _compiled(status, text)


def _compiled(status: int, text: str) -> str:
    if status != 0:
        error = _ERROR.search(text)
        raise NotLean(f"the lean headers do not suffice: {error[0].strip() if error else f'exit status {status}'}")
    return text


def compile_in_steps(command: list[str], target: Path) -> tuple[int, str]:
    """Compiles device and host code in parallel where possible, and stores the PTX beside the object."""
    folder = Path(tempfile.mkdtemp(prefix="nvcc-"))
    try:
        done = Steps(command, folder).run()
        ptx = b"".join(path.read_bytes() for path in sorted(folder.glob(f"*{PTX}")))
        Path(f"{target}{PTX}").write_bytes(ptx[:MAX_PTX_BYTES])
        return done
    except UnknownSteps:
        return _run(command)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout.decode(errors="replace") + signal_line(command[0], done.returncode)


def _source(arguments: list[str]) -> Path | None:
    """The one file that is compiled into an object; None for any other use of a compiler."""
    sources = [argument for argument in arguments if argument.endswith(_SOURCES) and not argument.startswith("-")]
    return Path(sources[0]) if "-c" in arguments and len(sources) == 1 else None


def _target(arguments: list[str]) -> Path | None:
    after = [following for flag, following in pairwise(arguments) if flag == "-o"]
    return Path(after[0]) if len(after) == 1 else None


def _folders(arguments: list[str]) -> list[Path]:
    joined = [Path(argument[2:]) for argument in arguments if argument.startswith("-I") and len(argument) > 2]
    separate = [Path(following) for flag, following in pairwise(arguments) if flag == "-I"]
    return joined + separate


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
