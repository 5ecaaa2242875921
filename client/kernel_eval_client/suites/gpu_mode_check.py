"""Reads the tolerances from the source of a GPU MODE task's `check_implementation`, which is never run."""

from __future__ import annotations

import ast
import json
import math

from kernel_eval_client.suites.problem import NotConvertible

_EXACT = {"verbose_allequal", "equal"}
_CLOSE = {"make_match_reference": 1, "match_reference": 3, "verbose_allclose": 2, "allclose": 2}
"""The comparisons, and how many arguments stand before `rtol` and `atol`."""
_HARMLESS = frozenset(
    (
        *("ref_kernel", "len", "isinstance", "type", "zip", "range", "enumerate"),
        *("tuple", "list", "bool", "str", "int"),
    )
)
"""Further functions that an element-wise comparison may call."""
_TOLERANCES = {"rtol", "atol", "reference", "max_print"}
_DEFAULTS = {"rtol": 1e-5, "atol": 1e-8}


def read_tolerances(source: str) -> dict[str, float]:
    """`atol` and `rtol` of an element-wise check, the tightest of several; {} if the check computes one.

    Raises NotConvertible for another check.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise NotConvertible(f"reference.py does not parse: {error}") from error
    check = next((node for node in tree.body if _defines(node, "check_implementation")), None)
    if check is None:
        raise NotConvertible("reference.py has no check_implementation, and no other tolerance is given")
    tolerances = []
    for call in (node for node in ast.walk(check) if isinstance(node, ast.Call)):
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        if name in _EXACT:
            tolerances.append({"rtol": 0.0, "atol": 0.0})
        elif name in _CLOSE:
            tolerances.append(_DEFAULTS | _literals(call, _CLOSE[name]))
        elif isinstance(call.func, ast.Name) and name not in _HARMLESS:
            raise NotConvertible(
                f"its check calls {name}(): more than a comparison element by element, and the service makes no other"
            )
    if any(math.isnan(tolerance) for allowed in tolerances for tolerance in allowed.values()):
        return {}
    if not tolerances:
        raise NotConvertible(
            "its check calls no known comparison; the service compares outputs with the reference's element by element"
        )
    return {name: min(allowed[name] for allowed in tolerances) for name in ("atol", "rtol")}


def _defines(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    return isinstance(node, ast.FunctionDef) and node.name == name


def _literals(call: ast.Call, others: int) -> dict[str, float]:
    """The tolerances that the call has, by name or by place after `others`; NaN for one that is no literal."""
    by_place = zip(("rtol", "atol"), call.args[others:], strict=False)
    tolerances = {name: _number(value) for name, value in by_place}
    for keyword in call.keywords:
        if keyword.arg not in _TOLERANCES:
            raise NotConvertible(
                f"its check has {keyword.arg}, which the service's comparison element by element does not have"
            )
        if keyword.arg in ("rtol", "atol"):
            tolerances[keyword.arg] = _number(keyword.value)
    return tolerances


def _number(value: ast.expr) -> float:
    try:
        return float(json.loads(ast.unparse(value)))
    except (ValueError, TypeError):
        return math.nan
