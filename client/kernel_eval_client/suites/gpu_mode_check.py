"""What a GPU MODE task's `check_implementation` allows, read off its source: it is never run."""

from __future__ import annotations

import ast
import json

from kernel_eval_client.suites.problem import NotOurs

_EXACT = {"verbose_allequal", "equal"}
_CLOSE = {"make_match_reference", "match_reference", "verbose_allclose", "allclose"}
_HARMLESS = frozenset(
    (
        *("ref_kernel", "len", "isinstance", "type", "zip", "range", "enumerate"),
        *("tuple", "list", "bool", "str", "int"),
    )
)
"""Functions that a check may call beside these without being more than a comparison."""
_TOLERANCES = {"rtol", "atol", "reference", "max_print"}
_DEFAULTS = {"rtol": 1e-5, "atol": 1e-8}


def tolerances_of(source: str) -> dict[str, float]:
    """What the check allows, the tightest where it compares several outputs. Raises NotOurs for any other check."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise NotOurs(f"reference.py does not parse: {error}") from error
    check = next((node for node in tree.body if _defines(node, "check_implementation")), None)
    if check is None:
        raise NotOurs("reference.py has no check_implementation, so that nothing says what is right")
    found = []
    for call in (node for node in ast.walk(check) if isinstance(node, ast.Call)):
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        if name in _EXACT:
            found.append({"rtol": 0.0, "atol": 0.0})
        elif name in _CLOSE:
            found.append(_DEFAULTS | _literals(call))
        elif isinstance(call.func, ast.Name) and name not in _HARMLESS:
            raise NotOurs(f"its check calls {name}(): more than a comparison element by element, which is all we have")
    if not found:
        raise NotOurs("its check is code of its own; here outputs are compared with the reference's element by element")
    return {name: min(each[name] for each in found) for name in ("atol", "rtol")}


def _defines(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    return isinstance(node, ast.FunctionDef) and node.name == name


def _literals(call: ast.Call) -> dict[str, float]:
    found = {}
    for keyword in call.keywords:
        if keyword.arg not in _TOLERANCES:
            raise NotOurs(f"its check has {keyword.arg}, which a comparison element by element here has not")
        if keyword.arg in ("rtol", "atol"):
            try:
                found[keyword.arg] = float(json.loads(ast.unparse(keyword.value)))
            except (ValueError, TypeError):
                raise NotOurs(f"its check's {keyword.arg} is worked out, {ast.unparse(keyword.value)}") from None
    return found
