"""Launch dimensions written as expressions of the scalar arguments: `cdiv(n, BLOCK) * 2`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from domain.contract import Dimension

Number = int | float
MAX_EXPRESSION_CHARS = 256
MAX_DIMENSION = 2**31 - 1


class ExpressionError(ValueError):
    """The text is no launch expression, or its value is no launch dimension."""


def _cdiv(a: Number, b: Number) -> Number:
    return -(-a // b)


def _next_power_of_2(n: Number) -> Number:
    return 1 << max(int(n) - 1, 0).bit_length()


_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "cdiv": _cdiv,
    "min": min,
    "max": max,
    "next_power_of_2": _next_power_of_2,
}

_FORMS = {"cdiv": "cdiv(a, b)", "min": "min(a, b, …)", "max": "max(a, b, …)", "next_power_of_2": "next_power_of_2(n)"}

_ALLOWED = (
    "write numbers, names of scalar arguments, + - * // %, " + ", ".join(_FORMS.values()) + ', as in "cdiv(n, BLOCK)"'
)

_OPERATORS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


def parse(text: str) -> ast.expr:
    """The syntax tree of a launch expression; raises ExpressionError, which names what is not allowed."""
    if len(text) > MAX_EXPRESSION_CHARS:
        raise ExpressionError(f"an expression has at most {MAX_EXPRESSION_CHARS} characters")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"not an expression: {text!r}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            _check_call(node)
        elif isinstance(node, ast.Constant):
            if not isinstance(node.value, (int, float)) or isinstance(node.value, bool):
                raise ExpressionError("constants are numbers")
        elif not isinstance(node, (ast.BinOp, ast.Name, ast.Load, ast.operator, ast.UnaryOp, ast.USub)):
            raise ExpressionError(f"{type(node).__name__} is not allowed in a launch expression; {_ALLOWED}")
        elif isinstance(node, ast.BinOp) and type(node.op) not in _OPERATORS:
            raise ExpressionError("operators are + - * // %")
    return tree


def _check_call(call: ast.Call) -> None:
    if not isinstance(call.func, ast.Name) or call.func.id not in _FUNCTIONS or call.keywords:
        raise ExpressionError(f"functions are {', '.join(_FUNCTIONS)}; arguments are positional")
    name, count = call.func.id, len(call.args)
    if count < 2 if name in ("min", "max") else count != _FORMS[name].count(",") + 1:
        raise ExpressionError(f"{name} is written {_FORMS[name]}")


def names(text: str) -> set[str]:
    """The argument names that the expression reads."""
    return {n.id for n in ast.walk(parse(text)) if isinstance(n, ast.Name)} - set(_FUNCTIONS)


def dimension(value: Dimension, scalars: Mapping[str, Number]) -> int:
    """The value of a launch dimension, with the scalar arguments by name. Raises ExpressionError if it has none."""
    if isinstance(value, int):
        return value
    try:
        result = _value(parse(value), scalars)
        if not 0 <= result <= MAX_DIMENSION or result != int(result):
            raise ExpressionError(f"{value!r} is {result}, not a launch dimension")
        return int(result)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ExpressionError(str(error)) from error


def number(text: str, values: Mapping[str, Number]) -> Number:
    """The value of an expression in which `values` gives every name. Raises ExpressionError."""
    try:
        return _value(parse(text), values)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ExpressionError(str(error)) from error


def substituted(text: str, values: Mapping[str, Number]) -> str:
    """The expression with numbers in place of the names in `values`; other names stay. Raises ExpressionError."""

    class Substitution(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            is_function = node.id in _FUNCTIONS
            return node if is_function or node.id not in values else ast.Constant(values[node.id])

    return ast.unparse(Substitution().visit(parse(text)))


def _value(node: ast.expr, scalars: Mapping[str, Number]) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name):
            if name not in scalars:
                raise ExpressionError(f"{name!r} is no scalar argument; there are: {', '.join(scalars) or 'none'}")
            return scalars[name]
        case ast.UnaryOp(operand=operand):
            return -_value(operand, scalars)
        case ast.BinOp(left=left, op=op, right=right):
            result = _OPERATORS[type(op)](_value(left, scalars), _value(right, scalars))
        case ast.Call(func=ast.Name(id=name), args=args):
            result = _FUNCTIONS[name](*(_value(argument, scalars) for argument in args))
        case _:
            raise ExpressionError("not a launch expression")
    if abs(result) > 2**63:
        raise ExpressionError("a launch expression stays under 2**63")
    return result
