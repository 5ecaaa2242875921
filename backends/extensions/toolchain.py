"""Prepares a folder with the compilers of a submission's extensions: drivers and lean headers.

The service's own code makes it, and submissions read it. Its name is a digest of its inputs, so a new torch or compiler
gets a new folder.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from backends.binary import ptxas_report
from backends.binary.cuda_toolkit import cuda_home
from backends.extensions import compiler_driver, include_scan, minimal_headers
from domain.fault import DRIVER_FAILED
from domain.paths import ROOT

_PARTS = (ptxas_report, compiler_driver, minimal_headers, include_scan)
_DRIVER = """#!{python} -IS
import sys
sys.path.insert(0, {library!r})
sys.dont_write_bytecode = True
try:
    from pathlib import Path
    from backends.extensions.compiler_driver import main
    status = main({tool!r}, Path({folder!r}), sys.argv[1:])
except Exception as error:
    sys.exit(f"{failed}: {{type(error).__name__}}: {{error}}")
sys.exit(status)
"""


def prepare(parent: Path) -> Path | None:
    """The folder below `parent` for this installation, created if needed; None where there is no compiler.

    Raises OSError.
    """
    tools = _tools()
    if "c++" not in tools:
        return None
    folder = parent / _digest(tools)
    if (folder / "toolchain.json").exists():
        return folder
    parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="draft-", dir=parent))
    try:
        draft.chmod(0o755)
        minimal_headers.write(draft / "include", torch_include())
        # A copy of its own, because a submission's processes need not see the service's folder.
        for part in _PARTS:
            copy = draft / "lib" / Path(str(part.__file__)).relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(part.__file__), copy)
        (draft / "bin").mkdir()
        for tool in tools:
            driver = draft / "bin" / tool
            names = {"python": sys.executable, "library": str(folder / "lib"), "tool": tool, "folder": str(folder)}
            text = _DRIVER.format(**names, failed=DRIVER_FAILED)
            driver.write_text(text, encoding="utf-8")
            driver.chmod(0o555)
        config = {**tools, "torch_include": str(torch_include())}
        (draft / "toolchain.json").write_text(json.dumps(config), encoding="utf-8")
        try:
            draft.rename(folder)
        except OSError:
            if not (folder / "toolchain.json").exists():  # Otherwise another process was faster.
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def torch_include() -> Path:
    """The folder of the installed torch's headers."""
    return Path(torch.__file__).parent / "include"


def versions() -> dict[str, str]:
    """The first lines of each compiler's own version report, by tool."""
    return {tool: _version(path) for tool, path in _tools().items()}


def _tools() -> dict[str, str]:
    tools = {}
    if path := shutil.which("c++"):
        tools["c++"] = path
    if home := cuda_home():
        tools["nvcc"] = str(home / "bin" / "nvcc")
    return tools


def _version(path: str) -> str:
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return f"{path} {done.stdout}"


def _digest(tools: dict[str, str]) -> str:
    parts = [Path(str(part.__file__)).read_text(encoding="utf-8") for part in _PARTS]
    inputs = [torch.__version__, str(torch_include()), sys.executable, sys.version, _DRIVER, *parts]
    inputs += [_version(path) for path in tools.values()]
    return hashlib.blake2b("\0".join(inputs).encode(), digest_size=16).hexdigest()
