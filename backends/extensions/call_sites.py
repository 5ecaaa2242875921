"""Finds where a source's text calls `load` or `load_inline`."""

from __future__ import annotations

import ast

MODULE, BUILDERS = "cpp_extension", ("load", "load_inline")


def functions_that_build(source: str) -> list[str] | None:
    """The names of module-level functions that call a builder; None where no function and no method does."""
    if MODULE not in source:
        return None
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # Python itself reports these.
        return None
    names = _Names(tree)
    inside = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
    if not any(map(names.called_in, inside)):
        return None
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and names.called_in(node)]


class _Names:
    """The local names of the module and its functions in a source."""

    def __init__(self, tree: ast.Module) -> None:
        self._modules = {MODULE}
        self._functions: set[str] = set()
        for node in ast.walk(tree):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            within = (getattr(node, "module", None) or "").rpartition(".")[2] == MODULE
            for alias in node.names:
                local_name = alias.asname or alias.name
                if within and alias.name in BUILDERS:
                    self._functions.add(local_name)
                elif alias.name.rpartition(".")[2] == MODULE:
                    self._modules.add(local_name)

    def called_in(self, node: ast.AST) -> bool:
        """Whether any code in this node calls a builder or passes one on."""
        return any(map(self._is_builder, ast.walk(node)))

    def _is_builder(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute):
            of = getattr(node.value, "attr", getattr(node.value, "id", None))
            return node.attr in BUILDERS and of in self._modules
        return isinstance(node, ast.Name) and node.id in self._functions
