"""Recognises sources in a folder that are no kernels: programs, helper modules, files without a function to call."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernel_eval_client.kernel import KernelType, guess_type

ENTRIES = frozenset({"Model", "ModelNew", "kernel_fn"})
_INPUT_FUNCTIONS = frozenset({"get_inputs", "get_init_inputs"})
_USES_THE_CLIENT = re.compile(r"^\s*(?:from|import) kernel_eval_client\b", re.MULTILINE)


def not_a_submission(source: str, file_name: str, entry: str | None) -> str | None:
    """The reason why a source is no submission, or None if it may be one.

    A source that does not parse counts as a submission: its verdict is the syntax error.
    """
    if file_name.endswith(".cu"):
        return None if "__global__" in source else "it has no __global__ function"
    if _USES_THE_CLIENT.search(source):
        return "it is a program that uses this client"
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    names = {entry} if entry else ENTRIES
    if names & set(_bound_names(tree)) or (len(_public_functions(tree)) == 1 and not entry):
        return None
    if not entry and guess_type(source) in (KernelType.TRITON, KernelType.GLUON):
        return None
    return f"it defines no {', '.join(sorted(names))}"


def _bound_names(tree: ast.Module) -> Iterator[str]:
    """Every name that the module defines, assigns or imports, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name


def _public_functions(tree: ast.Module) -> list[str]:
    """The functions that the service considers without an entry name: public, with parameters, not for inputs."""
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return [
        function.name
        for function in functions
        if function.name not in _INPUT_FUNCTIONS and function.name[0] != "_" and (ast.unparse(function.args) != "")
    ]
