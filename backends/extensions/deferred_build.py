"""Extensions that a source builds only where its class is constructed or called: built in the builder as well.

There nobody waits for a compiler with the device in hand. The source is led up to its calls of `load` and `load_inline`
with tensors that have no memory, each time in a process of its own, which ends there. What is not reached like this is
built in the runner, which says so.
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
from backends.extensions.jit_build import FOLDER, Called, Extensions
from backends.source.argument_binding import by_position, construct, input_maker, signature_of
from backends.source.entry_point import Entry

PATIENCE_S = 5.0
"""For what a source does before it builds. Without memory nothing is computed."""
LATE_S = 240.0
"""For all of it. What fails to be built here is built in the runner, in the same time."""
SIZE = 16
"""In place of a number that only a reference's `get_init_inputs` knows."""
BUILDING = b"building"


def build_late(extensions: Extensions, module: ModuleType, entry: Entry, source: str) -> None:
    """Builds what it can reach; what is wrong with that is found out where the source does it itself."""
    functions = functions_that_build(source)
    if functions is None:
        return
    until = time.monotonic() + LATE_S
    for way in _ways(module, entry, functions):
        while (called := _led(extensions, way, None, until)) is not None and not extensions.has(called[0]):
            # Under another key each time nobody would find it again.
            if _led(extensions, way, called, until) != called or not extensions.has(called[0]):
                break
            extensions.built.append(called[1])


def _ways(module: ModuleType, entry: Entry, functions: list[str]) -> Iterator[Callable[[], Any]]:
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
        own = _items(maker()) if maker is not None else _guessed(entry.target, SIZE)
        function = getattr(construct(entry.target, own, None), entry.method)
    inputs = input_maker("get_inputs", holders)
    made = inputs() if inputs is not None else _guessed(function, torch.empty(SIZE, SIZE))
    named = by_position(signature_of(function), made) if isinstance(made, dict) else None
    function(*(_items(made) if named is None else named))


def _items(made: Any) -> list[Any]:
    return list(made) if isinstance(made, list | tuple) else [made]


def _guessed(function: Callable[..., Any], value: Any) -> list[Any]:
    """That value for every argument which has to be given."""
    signature = signature_of(function)
    given = signature.parameters.values() if signature is not None else ()
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [value for one in given if one.kind in by_place and one.default is inspect.Parameter.empty]


def _led(
    extensions: Extensions, way: Callable[[], Any], wanted: tuple[str, str] | None, until: float
) -> tuple[str, str] | None:
    """Key and name of the next build on that way, done if it is the one that is `wanted`; None where none is reached.

    In a process of its own: a source may crash, hang, end, or keep to itself that it was stopped.
    """
    there = set(_files(extensions.folder))
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of threads, which the child has none of.
        pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            _lead(extensions, way, wanted, writing)
        finally:
            os._exit(0)
    os.close(writing)
    try:
        return _heard(reading, until)
    finally:
        os.close(reading)
        for kill in (os.killpg, os.kill):  # With its compilers, which are in its group.
            with contextlib.suppress(OSError):
                kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        _remove(path for path in _files(extensions.folder) if path not in there)


def _lead(extensions: Extensions, way: Callable[[], Any], wanted: tuple[str, str] | None, writing: int) -> None:
    os.setpgid(0, 0)
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silence, descriptor)
    extensions.waits = True
    try:
        with torch.device("meta"), torch.no_grad():
            way()
    except Called as called:
        extensions.waits = False
        if called.build is None:
            return
        building = (called.key, called.name) == wanted
        os.write(writing, f"{called.key} {called.name}\n".encode() + (BUILDING if building else b""))
        if building:
            called.build()


def _heard(reading: int, until: float) -> tuple[str, str] | None:
    """What it said until it ended. It has PATIENCE_S, and once it builds all the time that there is."""
    said, patience = b"", min(time.monotonic() + PATIENCE_S, until)
    while left := max((until if said.endswith(BUILDING) else patience) - time.monotonic(), 0.0):
        if not select.select([reading], [], [], left)[0]:
            break
        if not (more := os.read(reading, 1 << 12)):
            break
        said += more
    key, _, name = said.partition(b"\n")[0].decode(errors="replace").partition(" ")
    return (key, name) if name else None


def _files(folder: Path) -> Iterator[Path]:
    """All that lies in the job's folder, but for where extensions are built."""
    for place, folders, names in os.walk(folder):
        if Path(place) == folder and FOLDER in folders:
            folders.remove(FOLDER)
        yield from (Path(place, name) for name in (*folders, *names))


def _remove(paths: Iterator[Path]) -> None:
    """What was made on the way, so that the source finds its folder as it has left it."""
    for path in list(paths):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
