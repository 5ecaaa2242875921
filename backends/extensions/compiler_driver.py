"""The compiler driver for a submission's extensions: the stock command, with lean headers where these suffice.

Runs as `c++` and `nvcc` from a toolchain's folder (`backends.extensions.toolchain`), in the submission's own process
and with no more rights than the submission. Where the lean headers fail, the driver runs the stock command and passes
on its text and exit status. A note beside the object records which headers were used.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from backends.binary import ptxas_report
from backends.extensions.include_scan import includes_for
from backends.extensions.minimal_headers import NAMED

NOTE = ".headers"
"""Suffix of the file beside an object that records which headers were used."""
RESOURCES = ".resources"
"""Suffix of the file beside an object that lists its kernels' resources, as JSON."""
PTX = ".ptx"
"""Suffix of the file beside an object with its device code as PTX; the object itself has PTX only with a certain
flag."""
MAX_PTX_BYTES = 4 << 20
"""Maximum bytes of PTX that are stored for one source; the rest is cut."""

STOCK, LEAN = "stock", "lean"
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
        sys.stderr.write(_signal_line(config[tool], status))
        return _exit_status(status)
    note = Path(f"{target}{NOTE}")
    if tool == "nvcc":
        arguments = [*arguments, ptxas_report.VERBOSE]
    try:
        used, status, text = LEAN, 0, _lean(tool, toolchain, config, source, target, arguments)
    except (NotLean, OSError) as reason:
        used = f"{STOCK} ({reason})"
        status, text = _compile(tool, [config[tool], *arguments], target)
    note.write_text(used, encoding="utf-8")
    if tool == "nvcc":
        Path(f"{target}{RESOURCES}").write_text(json.dumps(ptxas_report.resources(text)), encoding="utf-8")
    sys.stderr.write(ptxas_report.strip_report(text))
    return _exit_status(status)


def _lean(tool: str, toolchain: Path, config: dict[str, str], source: Path, target: Path, arguments: list[str]) -> str:
    """The compiler's output with the lean headers. Raises NotLean."""
    headers = toolchain / "include"
    needed = includes_for(source, _folders(arguments), headers, Path(config["torch_include"]))
    if needed is None:
        raise NotLean("the source does not include torch's umbrella header, or needs all of it")
    # The folder stays: make and ninja record it as one of the object's sources.
    named = Path(f"{target}.named").absolute()
    named.mkdir(exist_ok=True)
    (named / NAMED).write_text("".join(f"#include <{name}>\n" for name in needed), encoding="utf-8")
    status, text = _compile(tool, [config[tool], f"-I{named}", f"-I{headers}", *arguments], target)
    if status != 0:
        error = _ERROR.search(text)
        raise NotLean(f"the lean headers do not suffice: {error[0].strip() if error else f'exit status {status}'}")
    return text


def _compile(tool: str, command: list[str], target: Path) -> tuple[int, str]:
    return compile_with_ptx(command, target) if tool == "nvcc" else _run(command)


def compile_with_ptx(command: list[str], target: Path) -> tuple[int, str]:
    """Runs nvcc, and stores the PTX beside the object. Returns subprocess's status, and the output."""
    with tempfile.TemporaryDirectory(prefix="nvcc-", ignore_cleanup_errors=True) as folder:
        done = _run([*command, "--keep", "--keep-dir", folder])
        ptx = b"".join(path.read_bytes() for path in sorted(Path(folder).glob(f"*{PTX}")))
        Path(f"{target}{PTX}").write_bytes(ptx[:MAX_PTX_BYTES])
    return done


def _run(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout.decode(errors="replace") + _signal_line(command[0], done.returncode)


def _signal_line(program: str, status: int) -> str:
    """A line for the log, since a killed compiler cannot write one; empty where no signal killed it.

    `status` is subprocess's: -N for signal N.
    """
    return f"{os.path.basename(program)} was killed by signal {-status}\n" if status < 0 else ""


def _exit_status(status: int) -> int:
    """The status as a shell reports it: subprocess's -9 is 137."""
    return 128 - status if status < 0 else status


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
