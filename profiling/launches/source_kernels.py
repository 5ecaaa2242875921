"""Finds the device kernels that a source defines, from its text alone: nothing of it runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from domain.kernel import Kernel, KernelType

MAX_CHARS = 1 << 18
MAX_DECLARATION = 1024

_WORD = re.compile(r"[A-Za-z_]\w*")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_ATTRIBUTE = re.compile(r"__\w+__\s*\((?:[^()]|\([^()]*\))*\)")
"""Attributes such as `__launch_bounds__(256, 2)`, which precede the kernel's name."""
_FUNCTION = re.compile(r"([A-Za-z_]\w*)\s*\(")


def words(kernel: Kernel) -> frozenset[str]:
    """Every word of the source: a kernel whose name is not among them is not from there."""
    return frozenset(_WORD.findall(kernel.source_code))


def defined_kernels(kernel: Kernel) -> frozenset[str]:
    """The names of the `__global__` functions and Triton kernels that the source defines, without namespaces.

    In Python it searches string literals for CUDA. It leaves out functions that other kernels call, and Triton kernels
    that get their name at compilation (`repr=`). A source that is too long or does not parse gives none.
    """
    source = kernel.source_code
    if len(source) > MAX_CHARS:
        return frozenset()
    if kernel.kernel_type is KernelType.CUDA:
        return _cuda(source)
    try:
        tree = ast.parse(source)
        literals = [text for text in _literals(tree) if "__global__" in text]
        return frozenset().union(_triton(tree), *map(_cuda, literals))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()


def _cuda(source: str) -> frozenset[str]:
    """The `__global__` functions of CUDA text. The scan takes linear time on any text, because the referee itself runs
    it."""
    _, *declarations = _COMMENT.sub(" ", source).split("__global__")
    matches = (_FUNCTION.search(_ATTRIBUTE.sub(" ", text[:MAX_DECLARATION])) for text in declarations)
    return frozenset(match[1] for match in matches if match is not None)


def _literals(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _triton(tree: ast.AST) -> frozenset[str]:
    aliases = frozenset(_triton_aliases(tree))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    jitted = {f.name: f for f in functions if any(_is_jit(one, aliases) for one in f.decorator_list)}
    called = {
        call.func.id
        for function in jitted.values()
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    }
    return frozenset(jitted) - called


def _triton_aliases(tree: ast.AST) -> Iterator[str]:
    """The names under which the source imports Triton, its modules and their members."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = (alias for alias in node.names if alias.name.partition(".")[0] == "triton")
            yield from (alias.asname or "triton" for alias in modules)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "triton":
            yield from (alias.asname or alias.name for alias in node.names)


def _is_jit(decorator: ast.expr, aliases: frozenset[str]) -> bool:
    """Whether it is `@triton.jit`, `@triton.jit(...)` or a `jit` imported from Triton, and of no other library."""
    if isinstance(decorator, ast.Call):
        if any(keyword.arg == "repr" for keyword in decorator.keywords):
            return False
        decorator = decorator.func
    name = ast.unparse(decorator)
    return name.partition(".")[0] in aliases and name.rpartition(".")[2] == "jit"
