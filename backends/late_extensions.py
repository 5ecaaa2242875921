"""Extensions that a source builds only where its class is constructed or called: built in the builder as well.

There nobody waits for a compiler with the device in hand. The source is led up to its calls of `load` and `load_inline`
with tensors that have no memory, and stopped at each. What is not reached like this is built in the runner, which says
so.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import FrameType, ModuleType
from typing import Any

import torch

from backends.arguments import construct, input_maker, signature_of
from backends.entry import Entry
from backends.extension import Called, Extensions

MODULE, BUILDERS = "cpp_extension", ("load", "load_inline")
PATIENCE_S = 5.0
"""For what a source does before it builds. Without memory nothing is computed."""
MOST = 8
"""Extensions of one function."""
SIZE = 16
"""In place of a number that only a reference's `get_init_inputs` knows."""


def build_late(extensions: Extensions, module: ModuleType, entry: Entry, source: str) -> None:
    """Builds what it can reach; what is wrong with that is found out where the source does it itself."""
    functions = _that_build(source)
    if functions is None:
        return
    for way in _ways(module, entry, functions):
        for _ in range(MOST):
            build = _led(extensions, way)
            if build is None:
                break
            with suppress(Exception):
                build()


def _that_build(source: str) -> list[str] | None:
    """The names of the module's functions that build; None where nothing is built in any function or method."""
    if MODULE not in source:
        return None
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # Of which Python itself made something else.
        return None
    inside = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
    if not any(map(_builds, inside)):
        return None
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and _builds(node)]


def _builds(node: ast.AST) -> bool:
    return any(_is_builder(each.func) for each in ast.walk(node) if isinstance(each, ast.Call))


def _is_builder(called: ast.expr) -> bool:
    """Of the many things that are called `load` those alone that are torch's by their name."""
    if isinstance(called, ast.Attribute):
        by_module = getattr(called.value, "attr", getattr(called.value, "id", None)) == MODULE
        return called.attr == BUILDERS[1] or (called.attr == BUILDERS[0] and by_module)
    return isinstance(called, ast.Name) and called.id in BUILDERS


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
    function(*(_items(inputs()) if inputs is not None else _guessed(function, torch.empty(SIZE, SIZE))))


def _items(made: Any) -> list[Any]:
    return list(made) if isinstance(made, list | tuple) else [made]


def _guessed(function: Callable[..., Any], value: Any) -> list[Any]:
    """That value for every argument which has to be given."""
    signature = signature_of(function)
    given = signature.parameters.values() if signature is not None else ()
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [value for one in given if one.kind in by_place and one.default is inspect.Parameter.empty]


def _led(extensions: Extensions, way: Callable[[], Any]) -> Callable[[], Any] | None:
    """The next build on that way; None where there is none, or it is not reached."""
    before = signal.signal(signal.SIGALRM, _enough)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    extensions.waits = True
    try:
        quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
        with quiet[0], quiet[1], torch.device("meta"), torch.no_grad():
            way()
    except Called as called:
        return called.build
    except BaseException:
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        extensions.waits = False
    return None


def _enough(_number: int, _frame: FrameType | None) -> None:
    raise Called(None)
