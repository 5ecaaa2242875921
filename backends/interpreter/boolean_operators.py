"""Has Triton's interpreter apply `and`, `or` and `not` to the elements of blocks, as Triton's compiler does."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

_COMBINED, _NEGATED = "_kernel_eval_combined", "_kernel_eval_negated"


def install() -> None:
    """The interpreter rewrites a kernel's source once, and puts the names of its own module into the kernel's."""
    interpreter.FunctionRewriter.ast_transformer = _Rewriting()
    setattr(interpreter, _COMBINED, _combined)
    setattr(interpreter, _NEGATED, _negated)


class _Rewriting(interpreter.ASTTransformer):  # type: ignore[misc]
    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        node.value = self.visit(node.value)
        rewritten: ast.AST = super().visit_Assign(node)
        return rewritten

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        no_arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        operands = [ast.Lambda(no_arguments, value) for value in node.values]
        return _call(_COMBINED, ast.Constant("and" if isinstance(node.op, ast.And) else "or"), *operands)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return _call(_NEGATED, node.operand) if isinstance(node.op, ast.Not) else node


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


def _negated(value: Any) -> Any:
    is_bits = isinstance(value, tl.tensor) and (_is_block(value) or value.type.is_int1())
    return value.__not__() if is_bits else not value


def _is_block(value: Any) -> bool:
    return isinstance(value, tl.tensor) and bool(value.type.is_block())
