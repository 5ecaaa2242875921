"""What a submission's extensions are compiled with: the stock compiler's command, with lean headers where they do.

Runs as `c++` and `nvcc` out of a toolchain's folder (`backends.extensions.toolchain`), in the submission's own process:
it can do nothing that the submission could not. Whatever the lean way fails at is done the stock way, whose text and
exit status are then the answer; a note beside the object says which it was.
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
from backends.extensions.ended_by_signal import exit_status, signal_line
from backends.extensions.include_scan import includes_for, named_in
from backends.extensions.minimal_headers import HOST, NAMED
from backends.extensions.nvcc_steps import Steps, UnknownSteps
from backends.extensions.pch import INCLUDED, variant

NOTE = ".headers"
"""Behind the object's name: the file that says which headers were used."""
RESOURCES = ".resources"
"""Likewise: what the kernels in it need, as JSON."""
PTX = ".ptx"
"""Likewise: its device code as PTX, which the object itself has only where a flag asks for it."""
MAX_PTX_BYTES = 4 << 20
"""Of a source; what is longer is cut."""

STOCK, LEAN, PRECOMPILED = "stock", "lean", "lean, precompiled"
_REFUSED = "-Winvalid-pch"
"""Has g++ say so where a precompiled header is not for these flags or macros; it reads the header itself then."""

_ERROR = re.compile(r"^.*\berror\b.*$", re.MULTILINE)
_SOURCES = (".cpp", ".cc", ".cxx", ".cu")


class NotLean(Exception):
    """The lean headers are not for this source, or it does not compile with them; the text says why."""


def main(tool: str, toolchain: Path, arguments: list[str]) -> int:
    """Compiles; returns the exit status."""
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
        status, text = _run([config[tool], *arguments])
    note.write_text(used, encoding="utf-8")
    if tool == "nvcc":
        Path(f"{target}{RESOURCES}").write_text(json.dumps(ptxas_report.resources(text)), encoding="utf-8")
    sys.stderr.write(ptxas_report.without(text))
    return exit_status(status)


def _lean(
    tool: str, toolchain: Path, config: dict[str, str], source: Path, target: Path, arguments: list[str]
) -> tuple[str, str]:
    """Which headers it was compiled with, and what the compiler wrote. Raises NotLean."""
    headers = toolchain / "include"
    needed = includes_for(source, _folders(arguments), headers, Path(config["torch_include"]))
    if needed is None:
        raise NotLean("the source does without torch's umbrella header, or needs all of it")
    # It stays: what make and ninja know of the object names it as one of its sources.
    named = Path(f"{target}.named").absolute()
    named.mkdir(exist_ok=True)
    (named / NAMED).write_text("".join(f"#include <{name}>\n" for name in needed), encoding="utf-8")
    folders = [f"-I{named}", f"-I{headers}"]
    if tool == "nvcc":
        methods = minimal_tensor.methods(named_in(source, _folders(arguments), Path(config["torch_include"])))
        (named / minimal_tensor.METHODS).write_text(methods, encoding="utf-8")
        return LEAN, _compiled(*_with_passes([config[tool], *folders, *arguments], target))
    precompiled = toolchain / "pch" / variant(arguments)
    ahead = [f"-I{precompiled}"] if (precompiled / f"{INCLUDED}.gch").is_file() else []
    forced = [f"-D{HOST}", _REFUSED, *ahead, *folders, "-include", INCLUDED, "-include", NAMED]
    status, text = _run([config[tool], *forced, *arguments])
    return PRECOMPILED if ahead and _REFUSED not in text else LEAN, _compiled(status, text)


def _compiled(status: int, text: str) -> str:
    if status != 0:
        error = _ERROR.search(text)
        raise NotLean(f"the lean headers do not do: {error[0].strip() if error else f'exit status {status}'}")
    return text


def _with_passes(command: list[str], target: Path) -> tuple[int, str]:
    """Device and host side by side, where that can be done; the PTX that comes about is kept beside the object."""
    folder = Path(tempfile.mkdtemp(prefix="nvcc-"))
    try:
        done = Steps(command, folder).run()
        made = b"".join(path.read_bytes() for path in sorted(folder.glob(f"*{PTX}")))
        Path(f"{target}{PTX}").write_bytes(made[:MAX_PTX_BYTES])
        return done
    except UnknownSteps:
        return _run(command)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout.decode(errors="replace") + signal_line(command[0], done.returncode)


def _source(arguments: list[str]) -> Path | None:
    """The one file that is compiled into an object; None for every other use of a compiler."""
    found = [argument for argument in arguments if argument.endswith(_SOURCES) and not argument.startswith("-")]
    return Path(found[0]) if "-c" in arguments and len(found) == 1 else None


def _target(arguments: list[str]) -> Path | None:
    after = [following for flag, following in pairwise(arguments) if flag == "-o"]
    return Path(after[0]) if len(after) == 1 else None


def _folders(arguments: list[str]) -> list[Path]:
    joined = [Path(argument[2:]) for argument in arguments if argument.startswith("-I") and len(argument) > 2]
    apart = [Path(following) for flag, following in pairwise(arguments) if flag == "-I"]
    return joined + apart


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
