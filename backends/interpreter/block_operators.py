"""Has Triton's interpreter treat `and`, `or`, `not`, `min`, `max`, `assert` of blocks as its compiler does."""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

_COMBINED, _NEGATED, _CALLED = "_kernel_eval_combined", "_kernel_eval_negated", "_kernel_eval_called"
_ASSERTED = "_kernel_eval_asserted"


def install() -> None:
    """The interpreter rewrites a kernel's source once, and puts the names of its own module into the kernel's."""
    interpreter.FunctionRewriter.ast_transformer = _Rewriting()
    setattr(interpreter, _COMBINED, _combined)
    setattr(interpreter, _NEGATED, _negated)
    setattr(interpreter, _CALLED, _called)
    setattr(interpreter, _ASSERTED, _asserted)


class _Rewriting(interpreter.ASTTransformer):  # type: ignore[misc]
    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        node.value = self.visit(node.value)
        rewritten: ast.AST = super().visit_Assign(node)
        return rewritten

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """Only `tl.device_assert` looks at all elements, and only where a launch asks for assertions."""
        self.generic_visit(node)
        asserted = _call(_ASSERTED, node.test, node.msg or ast.Constant(""))
        return ast.copy_location(ast.Expr(asserted), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        no_arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        operands = [ast.Lambda(no_arguments, value) for value in node.values]
        return _call(_COMBINED, ast.Constant("and" if isinstance(node.op, ast.And) else "or"), *operands)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return _call(_NEGATED, node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not (isinstance(node.func, ast.Name) and node.func.id in ("min", "max")):
            return node
        return ast.Call(ast.Name(_CALLED, ast.Load()), [node.func, *node.args], node.keywords)


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _combined(operator: str, *operands: Callable[[], Any]) -> Any:
    result = operands[0]()
    for operand in operands[1:]:
        if not _is_block(result) and bool(result) is (operator == "or"):
            return result
        value = operand()
        if not _is_block(result):
            result = value
        elif isinstance(value, tl.tensor):
            result = getattr(result, f"logical_{operator}")(value)
        elif bool(value) is (operator == "or"):  # A constexpr beside a block decides all elements or none.
            return value
    return result


def _asserted(condition: Any, message: Any) -> None:
    semantic = interpreter.interpreter_semantic
    semantic.device_assert(semantic.to_tensor(condition), message, None)


def _called(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """A kernel's call of what it names `min` or `max`, which may be a function of its own."""
    if function not in (builtins.min, builtins.max) or not any(isinstance(each, tl.tensor) for each in arguments):
        return function(*arguments, **options)
    of_blocks = tl.minimum if function is builtins.min else tl.maximum
    return functools.reduce(functools.partial(of_blocks, **options), arguments)


def _negated(value: Any) -> Any:
    is_bits = isinstance(value, tl.tensor) and (_is_block(value) or value.type.is_int1())
    return value.__not__() if is_bits else not value


def _is_block(value: Any) -> bool:
    return isinstance(value, tl.tensor) and bool(value.type.is_block())
