"""Makes the counter of a kernel's loop a tensor, as it is on a GPU: it has a type, and `i.to(tl.int64)` is a call."""

from __future__ import annotations

import ast

from triton.runtime.interpreter import ASTTransformer


def install() -> None:
    """Patches this process and its forks. The interpreter rewrites each kernel's source before it first runs."""
    ASTTransformer.visit_For = _visit_loop


def _visit_loop(transformer: ast.NodeTransformer, loop: ast.For) -> ast.For:
    """The same loop; over `range` or `tl.range`, its first statement makes the counter a tensor. `tl.static_range`
    counts in constants on a GPU too."""
    transformer.generic_visit(loop)
    function = loop.iter.func if isinstance(loop.iter, ast.Call) else None
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
    if name == "range" and isinstance(loop.target, ast.Name):
        counter = loop.target.id
        loop.body[:0] = ast.parse(f"{counter} = interpreter_semantic.to_tensor({counter}, False)").body
    return loop
