"""Packs several Python sources into one kernel: the first line of its source creates the others as modules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from kernel_eval_client.suites.problem import NotConvertible

_MAKE_MODULE = """
def make(name, text):
    file = f"<{name}.py>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, file, "exec"), vars(module))
"""
"""It stores the lines in `linecache`, since Triton reads the source of its kernels there."""


def prelude(modules: Mapping[str, str]) -> str:
    """One line of Python that adds the modules to `sys.modules`, in this order; "" without modules."""
    if not modules:
        return ""
    names = "{'linecache': __import__('linecache'), 'sys': __import__('sys'), 'types': __import__('types')}"
    calls = "; ".join(f"_kernel_eval_make({name!r}, {text!r})" for name, text in modules.items())
    return (
        f"_m = {names}; exec({_MAKE_MODULE!r}, _m); _kernel_eval_make = _m['make']; {calls}; del _m, _kernel_eval_make"
    )


def with_prelude(line: str, source: str) -> str:
    """The source with the prelude. It replaces a comment in the first line, so that line numbers stay the same."""
    if not line:
        return source
    lines = source.splitlines()
    future = [number for number, text in enumerate(lines) if text.startswith("from __future__")]
    index = future[-1] + 1 if future else 0
    remaining = lines[index + 1 :] if lines[index : index + 1] and lines[index].startswith("#") else lines[index:]
    return "\n".join([*lines[:index], line, *remaining]) + "\n"


def sort_by_imports(modules: Mapping[str, str]) -> dict[str, str]:
    """The modules, each after those that it imports. Raises NotConvertible for a cycle of imports."""
    remaining, ordered = dict(modules), dict[str, str]()
    while remaining:
        ready = [name for name, text in remaining.items() if not (set(_imported(text)) & remaining.keys()) - {name}]
        if not ready:
            raise NotConvertible(f"its files import each other: {', '.join(remaining)}")
        ordered.update((name, remaining.pop(name)) for name in ready)
    return ordered


def without_package(source: str) -> str:
    """The source with absolute in place of relative imports (`from .x import y`): the modules have no package."""
    source = re.sub(r"^([ \t]*from[ \t]+)\.(?=\w)", r"\1", source, flags=re.MULTILINE)
    return re.sub(r"^([ \t]*)from[ \t]+\.[ \t]+import[ \t]+", r"\1import ", source, flags=re.MULTILINE)


def _imported(source: str) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return  # The service reports the syntax error, with its line.
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]
