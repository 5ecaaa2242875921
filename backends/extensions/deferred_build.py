"""Compiles in the builder the extensions that a source builds only when its class is constructed or called.

The job then need not hold the device while a compiler runs. The builder runs the source up to its calls of `load` and
`load_inline`, on tensors without memory, each time in a process of its own that ends there. An extension that this does
not reach is built in the runner, which reports it.
"""

from __future__ import annotations

import contextlib
import inspect
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

from backends.extensions.call_sites import functions_that_build
from backends.extensions.jit_build import FOLDER, BuildRequested, Extensions
from backends.source.argument_binding import by_position, construct, input_maker, signature_of
from backends.source.entry_point import Entry

PATIENCE_S = 5.0
"""Maximum time that a source may run before it builds, in s. Without memory nothing is computed."""
LATE_S = 240.0
"""Maximum time for all late builds of one source, in s. A build that fails here is repeated in the runner."""
SIZE = 16
"""Replaces a number that only a reference's `get_init_inputs` knows."""
BUILDING = b"building"


def build_late(extensions: Extensions, module: ModuleType, entry: Entry, source: str) -> None:
    """Builds the extensions that it can reach; errors are left to the run, where the source makes the same calls."""
    functions = functions_that_build(source)
    if functions is None:
        return
    deadline = time.monotonic() + LATE_S
    for route in _routes_to_builds(module, entry, functions):
        while (request := _run_until_build(extensions, route, None, deadline)) is not None and not extensions.has(
            request[0]
        ):
            # If the key changes with each call, no later call would find the build.
            if _run_until_build(extensions, route, request, deadline) != request or not extensions.has(request[0]):
                break
            extensions.built.append(request[1])


def _routes_to_builds(module: ModuleType, entry: Entry, functions: list[str]) -> Iterator[Callable[[], Any]]:
    for name in functions:
        function = getattr(module, name, None)
        if callable(function) and not _guessed(function, None):
            yield function
    yield partial(_construct_and_call, module, entry)


def _construct_and_call(module: ModuleType, entry: Entry) -> None:
    holders = [module, entry.target]
    function = entry.target
    if entry.method is not None:
        maker = input_maker("get_init_inputs", holders)
        arguments = _items(maker()) if maker is not None else _guessed(entry.target, SIZE)
        function = getattr(construct(entry.target, arguments, None), entry.method)
    inputs = input_maker("get_inputs", holders)
    values = inputs() if inputs is not None else _guessed(function, torch.empty(SIZE, SIZE))
    named = by_position(signature_of(function), values) if isinstance(values, dict) else None
    function(*(_items(values) if named is None else named))


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _guessed(function: Callable[..., Any], value: Any) -> list[Any]:
    """The same value for every required argument."""
    signature = signature_of(function)
    parameters = signature.parameters.values() if signature is not None else ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        value
        for parameter in parameters
        if parameter.kind in positional and parameter.default is inspect.Parameter.empty
    ]


def _run_until_build(
    extensions: Extensions, route: Callable[[], Any], requested: tuple[str, str] | None, deadline: float
) -> tuple[str, str] | None:
    """Follows one route to its next build, and returns that build's key and name; None where the route builds nothing.

    If the build is the `requested` one, it is performed. All happens in a child process, because a source may crash,
    hang, exit, or swallow the exception that stops it.
    """
    there = set(_files(extensions.folder))
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The warning concerns threads, and the child has none.
        pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            _child(extensions, route, requested, writing)
        finally:
            os._exit(0)
    os.close(writing)
    try:
        return _read_report(reading, deadline)
    finally:
        os.close(reading)
        for kill in (os.killpg, os.kill):  # Its compilers are in its process group.
            with contextlib.suppress(OSError):
                kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        _remove(path for path in _files(extensions.folder) if path not in there)


def _child(extensions: Extensions, route: Callable[[], Any], requested: tuple[str, str] | None, writing: int) -> None:
    os.setpgid(0, 0)
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silence, descriptor)
    extensions.intercepting = True
    try:
        with torch.device("meta"), torch.no_grad():
            route()
    except BuildRequested as called:
        extensions.intercepting = False
        if called.build is None:
            return
        building = (called.key, called.name) == requested
        os.write(writing, f"{called.key} {called.name}\n".encode() + (BUILDING if building else b""))
        if building:
            called.build()


def _read_report(reading: int, deadline: float) -> tuple[str, str] | None:
    """Reads the child's report until it ends. The child has PATIENCE_S, and the remaining time once it builds."""
    report, patience = b"", min(time.monotonic() + PATIENCE_S, deadline)
    while left := max((deadline if report.endswith(BUILDING) else patience) - time.monotonic(), 0.0):
        if not select.select([reading], [], [], left)[0]:
            break
        if not (more := os.read(reading, 1 << 12)):
            break
        report += more
    key, _, name = report.partition(b"\n")[0].decode(errors="replace").partition(" ")
    return (key, name) if name else None


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
