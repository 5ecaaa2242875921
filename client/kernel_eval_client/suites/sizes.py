"""The sizes of a problem that has two sets: `SIZES` for the measurement, `SMALL` for a machine without a GPU.

The reference has two literal dicts of integers at its top level, and its `get_inputs` and `get_init_inputs` read
`SIZES`. A candidate's contract may then name a size in place of a number.
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


def read_sizes(source: str, *, small: bool) -> dict[str, int]:
    """The sizes to use: `SMALL` if `small`, else `SIZES` ({} without one). Raises CallerError for a missing `SMALL`."""
    sizes = _literals(source)
    if small and "SMALL" not in sizes:
        raise CallerError("the reference has no SMALL sizes: leave out --small, or give it a dict of that name")
    return sizes.get("SMALL" if small else "SIZES", {})


def with_small_sizes(source: str) -> str:
    """The reference with its small sizes. The statement goes to the end, so that line numbers stay the same."""
    return source.rstrip("\n") + "\n\nSIZES = SMALL\n"


def with_sizes(wire: Any, sizes: Mapping[str, int]) -> Any:
    """A contract (as JSON) with numbers for the names of sizes in `shape`, `strides`, a scalar's `value` and `launch`.

    A launch expression with other names stays as it is: the service evaluates it.
    """
    if isinstance(wire, list):
        return [with_sizes(each, sizes) for each in wire]
    if not isinstance(wire, dict):
        return wire
    numbers = {"shape", "strides"} | ({"value"} if wire.get("type") in ("int", "float") else set())
    result = {
        key: _evaluate_all(value, sizes) if key in numbers else with_sizes(value, sizes) for key, value in wire.items()
    }
    if isinstance(wire.get("launch"), dict):
        result["launch"] = {key: _evaluate_if_possible(value, sizes) for key, value in wire["launch"].items()}
    return result


def _evaluate_if_possible(value: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(value, list):
        return [_evaluate_if_possible(each, sizes) for each in value]
    try:
        return _evaluate_all(value, sizes)
    except CallerError:
        return value


def _evaluate_all(value: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(value, list):
        return [_evaluate_all(each, sizes) for each in value]
    return evaluate_size(value, sizes) if isinstance(value, str) else value


def evaluate_size(text: str, sizes: Mapping[str, int]) -> int:
    """The value of an expression of integers, names of sizes and + - * // %. Raises CallerError for anything else."""

    def value_of(node: ast.AST) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id in sizes:
            return sizes[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return int(_OPERATORS[type(node.op)](value_of(node.left), value_of(node.right)))
        raise ValueError(ast.unparse(node))

    try:
        return value_of(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError) as error:
        names = ", ".join(sizes) or "none"
        raise CallerError(f"{text!r} is no size: {error}; known are {names}, + - * // %") from error


def _literals(source: str) -> dict[str, dict[str, int]]:
    sizes: dict[str, dict[str, int]] = {}
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return sizes  # The service reports the syntax error, with its line.
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in ("SIZES", "SMALL") and isinstance(node.value, ast.Dict):
                try:
                    sizes[name] = {str(key): int(value) for key, value in ast.literal_eval(node.value).items()}
                except (ValueError, TypeError) as error:
                    raise CallerError(f"{name} must be a dict of whole numbers: {error}") from error
    return sizes
