"""Which sources of a folder are no kernels at all: programs, helpers, files without anything that could be called."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernel_eval_client.kernel import KernelType, guess_type

ENTRIES = frozenset({"Model", "ModelNew", "kernel_fn"})
_MAKERS = frozenset({"get_inputs", "get_init_inputs"})
_OF_THE_CLIENT = re.compile(r"^\s*(?:from|import) kernel_eval_client\b", re.MULTILINE)


def why_none(source: str, file_name: str, entry: str | None) -> str | None:
    """Why a source is no submission; None where it may be one, as is what does not parse: its error is its verdict."""
    if file_name.endswith(".cu"):
        return None if "__global__" in source else "it has no __global__ function"
    if _OF_THE_CLIENT.search(source):
        return "it is a program that uses this client"
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    wanted = {entry} if entry else ENTRIES
    if wanted & set(_bound(tree)) or (len(_own_functions(tree)) == 1 and not entry):
        return None
    if not entry and guess_type(source) is KernelType.TRITON:
        return None
    return f"it defines no {', '.join(sorted(wanted))}"


def _bound(tree: ast.Module) -> Iterator[str]:
    """Every name that it binds, at whatever depth, and what it has of others."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name


def _own_functions(tree: ast.Module) -> list[str]:
    """As the service counts them where no name is given: public, with parameters, and none that makes inputs."""
    found = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return [
        each.name
        for each in found
        if each.name not in _MAKERS and each.name[0] != "_" and (ast.unparse(each.args) != "")
    ]
