"""Where a source calls `load` or `load_inline`, by its text."""

from __future__ import annotations

import ast

MODULE, BUILDERS = "cpp_extension", ("load", "load_inline")


def functions_that_build(source: str) -> list[str] | None:
    """The names of the module's functions that do; None where no function and no method does."""
    if MODULE not in source:
        return None
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # Of which Python itself made something else.
        return None
    names = _Names(tree)
    inside = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
    if not any(map(names.called_in, inside)):
        return None
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and names.called_in(node)]


class _Names:
    """What the module and its functions are called in a source."""

    def __init__(self, tree: ast.Module) -> None:
        self._modules = {MODULE}
        self._functions: set[str] = set()
        for node in ast.walk(tree):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            within = (getattr(node, "module", None) or "").rpartition(".")[2] == MODULE
            for one in node.names:
                called = one.asname or one.name
                if within and one.name in BUILDERS:
                    self._functions.add(called)
                elif one.name.rpartition(".")[2] == MODULE:
                    self._modules.add(called)

    def called_in(self, node: ast.AST) -> bool:
        """Whether anything in there is a call of one, or hands one on."""
        return any(map(self._is_builder, ast.walk(node)))

    def _is_builder(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute):
            of = getattr(node.value, "attr", getattr(node.value, "id", None))
            return node.attr in BUILDERS and of in self._modules
        return isinstance(node, ast.Name) and node.id in self._functions
