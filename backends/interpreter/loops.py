"""Makes the counter of a kernel's loop a tensor, as it is on a GPU: it has a type, and `i.to(tl.int64)` is a call."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

from triton.runtime import interpreter
from triton.runtime.interpreter import ASTTransformer


def install() -> None:
    """Patches this process and its forks. The interpreter rewrites each kernel's source before it first runs."""
    ASTTransformer.visit_For = _visit_loop
    interpreter.interpreter_semantic.counters = _counters


def _visit_loop(transformer: ast.NodeTransformer, loop: ast.For) -> ast.For:
    """The same loop; over `range` or `tl.range`, its counter is a tensor. `tl.static_range` counts in constants on a
    GPU too."""
    transformer.generic_visit(loop)
    if not isinstance(loop.iter, ast.Call):
        return loop
    function = loop.iter.func
    if (function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)) == "range":
        loop.iter.args.insert(0, function)
        loop.iter.func = ast.parse("interpreter_semantic.counters", mode="eval").body
    return loop


def _counters(numbers_of: Callable[..., Iterable[int]], *bounds: Any, **options: Any) -> Iterator[Any]:
    """Each number as a tensor of the type that the bounds have together: int64 where one of them is."""
    semantic = interpreter.interpreter_semantic
    numbers = numbers_of(*bounds, **options)  # Refuses bounds that are no integers.
    kind = reduce(semantic.integer_promote_impl, [semantic.to_tensor(bound).dtype for bound in (0, *bounds)])
    for number in numbers:
        yield semantic.cast(semantic.to_tensor(number, False), kind)
