"""The call of a flashinfer-bench solution: by keyword where its parameters are the inputs' names, else by position."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Sequence

from kernel_eval_client.suites.problem import NotConvertible

ENTRY = "kernel_eval_entry"
_OUTPUTS = "    return tuple(result[name] for name in {outputs!r}) if isinstance(result, dict) else result\n"
_BY_POSITION = f"""

import functools as _kernel_eval_functools

_kernel_eval_called = {{function}}


@_kernel_eval_functools.wraps({{function}})
def {ENTRY}(*args):
    result = _kernel_eval_called(*args)
{_OUTPUTS}"""
_BY_NAME = f"""

_kernel_eval_called = {{function}}


def {ENTRY}({{names}}):
    result = _kernel_eval_called({{arguments}})
{_OUTPUTS}"""


def with_entry(
    source: str, modules: Sequence[str], function: str, inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[str, str]:
    """Returns the source, with a wrapper if the call needs one, and the name of the function to call.

    `modules` are the other sources that may define the function. The wrapper passes arguments by keyword, and returns
    a dict's outputs in the definition's order. Raises NotConvertible where the function requires a keyword
    argument that is no input of the definition.
    """
    parameters = next(filter(None, (_arguments(text, function) for text in (source, *modules))), None)
    names = None if parameters is None else _keyword_order(parameters, function, inputs, outputs)
    if names is not None:
        arguments = ", ".join(f"{name}={name}" for name in names)
        text = _BY_NAME.format(function=function, names=", ".join(names), arguments=arguments, outputs=tuple(outputs))
        return source + text, ENTRY
    if "return {" in source or "return dict(" in source:
        return source + _BY_POSITION.format(function=function, outputs=tuple(outputs)), ENTRY
    return source, function


def _keyword_order(
    parameters: ast.arguments, function: str, inputs: Sequence[str], outputs: Sequence[str]
) -> list[str] | None:
    """The arguments to pass by keyword, in the contract's order; None where all are passed by position."""
    if parameters.vararg or parameters.posonlyargs:
        return None
    positional, keywords = (
        [parameter.arg for parameter in group] for group in (parameters.args, parameters.kwonlyargs)
    )
    for order in ([*inputs], [*inputs, *outputs]):
        if positional == order and not keywords:
            return None  # The service calls it like this without a wrapper.
        fits = parameters.kwarg is not None and set(order) >= {*positional, *keywords}
        if (fits or {*positional, *keywords} == set(order)) and all(map(_is_name, order)):
            return order
    required = [
        name.arg for name, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True) if default is None
    ]
    if required:
        raise NotConvertible(
            f"its {function} takes {', '.join(required)} by keyword, and not the definition's inputs by name"
        )
    return None


def _arguments(source: str, function: str) -> ast.arguments | None:
    """The function's parameters; None where this source does not define it."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    definitions = [node.args for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    return definitions[-1] if definitions else None


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)
