"""Finds where a file of tests reaches into private state, by its syntax tree.

Private is a name with one leading underscore: of an attribute of anything but `self`, `cls` and `super()`, of an
import, or in a text that names an attribute (`setattr`, `getattr`). So is `__new__`, which makes an object without its
constructor, and SimpleNamespace, which stands in for a class and does not follow when that changes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

OWN = ("self", "cls")
BY_TEXT = ("setattr", "getattr", "delattr", "hasattr")
STAND_IN = "SimpleNamespace"
RAW_OBJECT = "__new__"


@dataclass(frozen=True)
class PrivateAccess:
    """A name that a test may not use, and its line in the file."""

    name: str
    line: int


def private_accesses(source: str) -> list[PrivateAccess]:
    """All of them in a file, in the order of their lines."""
    found = [PrivateAccess(name, line) for node in ast.walk(ast.parse(source)) for name, line in _of(node)]
    return sorted(found, key=lambda access: access.line)


def _of(node: ast.AST) -> Iterator[tuple[str, int]]:
    match node:
        case ast.Attribute(value=value, attr=name):
            if name in (RAW_OBJECT, STAND_IN) or (_is_private(name) and not _is_own(value)):
                yield name, node.lineno
        case ast.Name(id=name) if name == STAND_IN:
            yield name, node.lineno
        case ast.ImportFrom(names=aliases):
            yield from ((alias.name, node.lineno) for alias in aliases if _is_private(alias.name))
        case ast.Call(args=arguments) if _called(node) in BY_TEXT:
            texts = [each.value for each in arguments if isinstance(each, ast.Constant)]
            names = [text.rpartition(".")[2] for text in texts if isinstance(text, str)]
            yield from ((name, node.lineno) for name in names if _is_private(name))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _is_own(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in OWN


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""
