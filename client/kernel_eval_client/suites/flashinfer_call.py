"""How a flashinfer-bench solution is called: by its inputs' names where its parameters have these, else by position."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Sequence

from kernel_eval_client.suites.problem import NotOurs

ENTRY = "kernel_eval_entry"
_OUTPUTS = "    return tuple(found[name] for name in {outputs!r}) if isinstance(found, dict) else found\n"
_BY_POSITION = f"""

import functools as _kernel_eval_functools

_kernel_eval_called = {{function}}


@_kernel_eval_functools.wraps({{function}})
def {ENTRY}(*args):
    found = _kernel_eval_called(*args)
{_OUTPUTS}"""
_BY_NAME = f"""

_kernel_eval_called = {{function}}


def {ENTRY}({{names}}):
    found = _kernel_eval_called({{given}})
{_OUTPUTS}"""


def called(
    source: str, others: Sequence[str], function: str, inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[str, str]:
    """The source, with an entry of ours behind it where one is needed, and what is to be called.

    `others` are the sources that it may have it from. Where outputs are returned by name, they are put in the
    definition's order: the service takes them as they come. Raises NotOurs where it takes something by keyword that the
    definition has not.
    """
    taken = next(filter(None, (_arguments(each, function) for each in (source, *others))), None)
    names = None if taken is None else _by_name(taken, function, inputs, outputs)
    if names is not None:
        given = ", ".join(f"{name}={name}" for name in names)
        text = _BY_NAME.format(function=function, names=", ".join(names), given=given, outputs=tuple(outputs))
        return source + text, ENTRY
    if "return {" in source or "return dict(" in source:
        return source + _BY_POSITION.format(function=function, outputs=tuple(outputs)), ENTRY
    return source, function


def _by_name(taken: ast.arguments, function: str, inputs: Sequence[str], outputs: Sequence[str]) -> list[str] | None:
    """What to give it by name, in the contract's order; None where it is to be called by position."""
    if taken.vararg or taken.posonlyargs:
        return None
    by_place, by_keyword = ([each.arg for each in some] for some in (taken.args, taken.kwonlyargs))
    for order in ([*inputs], [*inputs, *outputs]):
        if by_place == order and not by_keyword:
            return None  # As the service would call it anyway.
        fits = taken.kwarg is not None and set(order) >= {*by_place, *by_keyword}
        if (fits or {*by_place, *by_keyword} == set(order)) and all(map(_is_name, order)):
            return order
    required = [name.arg for name, default in zip(taken.kwonlyargs, taken.kw_defaults, strict=True) if default is None]
    if required:
        raise NotOurs(f"its {function} takes {', '.join(required)} by keyword, and not the definition's inputs by name")
    return None


def _arguments(source: str, function: str) -> ast.arguments | None:
    """What the function takes, where it is defined in that source."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    found = [node.args for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    return found[-1] if found else None


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)
