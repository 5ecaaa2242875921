"""Further sources of Python beside a kernel's own, which is one: modules that are made where it is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from kernel_eval_client.suites.problem import NotOurs

_MADE = """
def make(name, text):
    file = f"<{name}.py>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, file, "exec"), vars(module))
"""
"""Its lines are kept, since Triton reads those of its kernels."""


def prelude(modules: Mapping[str, str]) -> str:
    """One line that puts them where `import` finds them, in this order; empty where there are none."""
    if not modules:
        return ""
    names = "{'linecache': __import__('linecache'), 'sys': __import__('sys'), 'types': __import__('types')}"
    made = "; ".join(f"_kernel_eval_make({name!r}, {text!r})" for name, text in modules.items())
    return f"_m = {names}; exec({_MADE!r}, _m); _kernel_eval_make = _m['make']; {made}; del _m, _kernel_eval_make"


def with_prelude(line: str, source: str) -> str:
    """The prelude in place of the first line where that is a comment, so that line numbers stay."""
    if not line:
        return source
    lines = source.splitlines()
    future = [number for number, text in enumerate(lines) if text.startswith("from __future__")]
    place = future[-1] + 1 if future else 0
    rest = lines[place + 1 :] if lines[place : place + 1] and lines[place].startswith("#") else lines[place:]
    return "\n".join([*lines[:place], line, *rest]) + "\n"


def in_order(modules: Mapping[str, str]) -> dict[str, str]:
    """Each behind those that it imports. Raises NotOurs where they import each other."""
    left, found = dict(modules), dict[str, str]()
    while left:
        ready = [name for name, text in left.items() if not (set(_imported(text)) & left.keys()) - {name}]
        if not ready:
            raise NotOurs(f"its files import each other: {', '.join(left)}")
        found.update((name, left.pop(name)) for name in ready)
    return found


def absolute(source: str) -> str:
    """With `from .x import y` as `from x import y`, and `from . import x` as `import x`: there is no package here."""
    source = re.sub(r"^([ \t]*from[ \t]+)\.(?=\w)", r"\1", source, flags=re.MULTILINE)
    return re.sub(r"^([ \t]*)from[ \t]+\.[ \t]+import[ \t]+", r"\1import ", source, flags=re.MULTILINE)


def _imported(source: str) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return  # The service says so, at its line.
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]
