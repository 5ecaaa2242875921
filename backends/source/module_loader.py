"""Imports a source text as a module, from a real file in the job folder that tracebacks and Triton can read."""

from __future__ import annotations

import importlib.util
import itertools
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

FILE_NAME = "kernel.py"
MODULE_PREFIX = "_submission_"
"""Begins the names of the modules of sources in `sys.modules`."""

PRESEEDED: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "math": math}
"""Names that a source can use without importing them; its own imports and definitions take precedence."""

_serial = itertools.count()


def import_source(source: str, folder: Path) -> ModuleType:
    """Writes the source to `folder`/kernel.py and executes it as a module under a private, unique name.

    Raises whatever the source raises (SystemExit too), SyntaxError or ValueError where it is not Python.
    """
    path = folder / FILE_NAME
    text = source.encode()
    if not path.exists() or path.read_bytes() != text:
        path.write_bytes(text)
    module = _empty(f"{MODULE_PREFIX}{next(_serial)}", path)
    sys.modules[module.__name__] = module
    try:
        # Not the loader's exec_module, which would write bytecode and could load it again after a change.
        # Compiled from text, because bytes could declare an encoding in a comment.
        exec(compile(source, str(path), "exec", dont_inherit=True), vars(module))
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def _empty(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    vars(module).update(PRESEEDED)
    return module
