"""The sizes of a problem that has two sets: `SIZES`, what is measured, and `SMALL`, for a machine without a GPU.

A reference that wants both has two literal dicts of whole numbers at its top level, and its `get_inputs` and
`get_init_inputs` read `SIZES`. A contract beside it may then name them where a number stands.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from typing import Any

from kernel_eval_client.errors import CallerError

_OPERATORS = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul},
    **{ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod},
}


def sizes_of(source: str, *, small: bool) -> dict[str, int]:
    """What `SIZES` is to be; empty where there is none. Raises CallerError where `SMALL` is wanted and absent."""
    found = _literals(source)
    if small and "SMALL" not in found:
        raise CallerError("the reference has no SMALL sizes: leave out --small, or give it a dict of that name")
    return found.get("SMALL" if small else "SIZES", {})


def shrunk(source: str) -> str:
    """The reference at its small sizes: one line more, so that line numbers stay."""
    return source.rstrip("\n") + "\n\nSIZES = SMALL\n"


def filled(wire: Any, sizes: Mapping[str, int]) -> Any:
    """A contract in the wire's form with its sizes put in: in `shape`, `strides`, a scalar's `value` and the launch.

    A launch expression that also has other names in it is left to the service.
    """
    if isinstance(wire, list):
        return [filled(each, sizes) for each in wire]
    if not isinstance(wire, dict):
        return wire
    numbers = {"shape", "strides"} | ({"value"} if wire.get("type") in ("int", "float") else set())
    done = {key: _numbers(value, sizes) if key in numbers else filled(value, sizes) for key, value in wire.items()}
    if isinstance(wire.get("launch"), dict):
        done["launch"] = {key: _where_known(value, sizes) for key, value in wire["launch"].items()}
    return done


def _where_known(value: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(value, list):
        return [_where_known(each, sizes) for each in value]
    try:
        return _numbers(value, sizes)
    except CallerError:
        return value


def _numbers(value: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(value, list):
        return [_numbers(each, sizes) for each in value]
    return evaluated(value, sizes) if isinstance(value, str) else value


def evaluated(text: str, sizes: Mapping[str, int]) -> int:
    """A number, or + - * // % over numbers and the names of sizes: nothing else is run. Raises CallerError."""

    def at(node: ast.AST) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id in sizes:
            return sizes[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return int(_OPERATORS[type(node.op)](at(node.left), at(node.right)))
        raise ValueError(ast.unparse(node))

    try:
        return at(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError) as error:
        known = ", ".join(sizes) or "none"
        raise CallerError(f"{text!r} is no size: {error}; known are {known}, + - * // %") from error


def _literals(source: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return found  # The service says so better, at its line.
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in ("SIZES", "SMALL") and isinstance(node.value, ast.Dict):
                try:
                    found[name] = {str(key): int(value) for key, value in ast.literal_eval(node.value).items()}
                except (ValueError, TypeError) as error:
                    raise CallerError(f"{name} must be a dict of whole numbers: {error}") from error
    return found
