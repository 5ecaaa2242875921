"""Compiles in the builder the extensions that a source builds only when its class is constructed or called.

The job then need not hold the device while a compiler runs. The builder runs the source on, on tensors without memory,
in a process of its own: its calls of `load` and `load_inline` compile, and return stand-ins that nobody can call. An
extension that this does not reach is built in the runner, which reports it.
"""

from __future__ import annotations

import ast
import contextlib
import os
import select
import shutil
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from backends.extensions.jit_build import FOLDER, Extensions
from backends.source.argument_binding import by_position, construct, input_maker, required_names, signature_of
from backends.source.entry_point import Entry

PATIENCE_S = 5
"""Maximum time that a source may run before, between and after its builds, in s. Without memory nothing is computed."""
LATE_S = 240.0
"""Maximum time for all late builds of one source, in s. A build that fails here is repeated in the runner."""
SIZE = 16
"""Replaces a number that only a reference's `get_init_inputs` knows."""
BUILDERS = ("load", "load_inline")


def build_late(extensions: Extensions, module: ModuleType, entry: Entry, source: str) -> None:
    """Builds the extensions that it can reach; errors are left to the run, where the source makes the same calls."""
    functions = functions_that_build(source)
    if functions is None:
        return
    deadline = time.monotonic() + LATE_S
    for route in _routes_to_builds(module, entry, functions):
        before = extensions.files()
        _follow(extensions, route, deadline)
        extensions.built += [path.stem for key, path in extensions.files().items() if key not in before]


def functions_that_build(source: str) -> list[str] | None:
    """The names of module-level functions that seem to call a builder; None where no function and no method does."""
    if "cpp_extension" not in source:
        return None
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # Python itself reports these.
        return None
    nodes = list(ast.walk(tree))
    imported = [alias for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names]
    builders = {*BUILDERS, *(alias.asname for alias in imported if alias.name in BUILDERS)}

    def builds(node: ast.AST) -> bool:
        return any(getattr(part, "attr", getattr(part, "id", "")) in builders for part in ast.walk(node))

    if not any(builds(node) for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)):
        return None
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and builds(node)]


def _routes_to_builds(module: ModuleType, entry: Entry, functions: list[str]) -> Iterator[Callable[[], Any]]:
    for name in functions:
        function = getattr(module, name, None)
        if callable(function) and not required_names(signature_of(function)):
            yield function
    yield partial(_construct_and_call, module, entry)


def _construct_and_call(module: ModuleType, entry: Entry) -> None:
    holders = [module, entry.target]
    function = entry.target
    if entry.method is not None:
        maker = input_maker("get_init_inputs", holders)
        arguments = _items(maker()) if maker is not None else [SIZE] * len(required_names(signature_of(entry.target)))
        function = getattr(construct(entry.target, arguments, None), entry.method)
    inputs = input_maker("get_inputs", holders)
    values = inputs() if inputs is not None else [torch.empty(SIZE, SIZE)] * len(required_names(signature_of(function)))
    named = by_position(signature_of(function), values) if isinstance(values, dict) else None
    function(*(_items(values) if named is None else named))


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _follow(extensions: Extensions, route: Callable[[], Any], deadline: float) -> None:
    """Follows one route in a child process, because a source may crash, hang or exit on the way."""
    there = set(_files(extensions.folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The warning concerns threads, and the child has none.
        pid = os.fork()
    if pid == 0:
        try:
            _child(extensions, route)
        finally:
            os._exit(0)
    child = os.pidfd_open(pid)
    try:
        select.select([child], [], [], max(deadline - time.monotonic(), 0.0))
    finally:
        os.close(child)
        for kill in (os.killpg, os.kill):  # Its compilers are in its process group.
            with contextlib.suppress(OSError):
                kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        _remove(path for path in _files(extensions.folder) if path not in there)


def _child(extensions: Extensions, route: Callable[[], Any]) -> None:
    os.setpgid(0, 0)
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silence, descriptor)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # It ends the process.
    signal.alarm(PATIENCE_S)
    extensions.build_ahead = _build_without_alarm
    with torch.device("meta"), torch.no_grad():
        route()


def _build_without_alarm(build: Callable[[], Any]) -> None:
    signal.alarm(0)
    try:
        with torch.device("cpu"):
            build()
    finally:
        signal.alarm(PATIENCE_S)


def _files(folder: Path) -> Iterator[Path]:
    """All files in the job's folder, except where extensions are built."""
    for place, folders, names in os.walk(folder):
        if Path(place) == folder and FOLDER in folders:
            folders.remove(FOLDER)
        yield from (Path(place, name) for name in (*folders, *names))


def _remove(paths: Iterator[Path]) -> None:
    """Removes the files that the child made, so that the source later finds its folder unchanged."""
    for path in list(paths):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
