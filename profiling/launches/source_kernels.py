"""Which device kernels a source defines, by its text: nothing of it is run."""

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
"""`__launch_bounds__(256, 2)` and its like, which stand where the name is looked for."""
_FUNCTION = re.compile(r"([A-Za-z_]\w*)\s*\(")


def words(kernel: Kernel) -> frozenset[str]:
    """Every word of the source: a kernel whose name is not among them was not written there."""
    return frozenset(_WORD.findall(kernel.source_code))


def defined_kernels(kernel: Kernel) -> frozenset[str]:
    """The names of the `__global__` functions and Triton kernels that the source defines, without namespaces.

    In Python, CUDA is looked for in string literals. Functions that only other kernels call are none, and one that
    names itself when it is compiled (`repr=`) is left out; so is all of a source that is long or does not parse.
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
    """By a scan that takes linear time whatever it is given: the referee does it, in no sandbox."""
    _, *declarations = _COMMENT.sub(" ", source).split("__global__")
    found = (_FUNCTION.search(_ATTRIBUTE.sub(" ", text[:MAX_DECLARATION])) for text in declarations)
    return frozenset(match[1] for match in found if match is not None)


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
    """What the source calls Triton, its modules and what it takes out of them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = (alias for alias in node.names if alias.name.partition(".")[0] == "triton")
            yield from (alias.asname or "triton" for alias in modules)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "triton":
            yield from (alias.asname or alias.name for alias in node.names)


def _is_jit(decorator: ast.expr, aliases: frozenset[str]) -> bool:
    """`@triton.jit`, `@jit` taken out of Triton, `@triton.jit(...)`; no other library's."""
    if isinstance(decorator, ast.Call):
        if any(keyword.arg == "repr" for keyword in decorator.keywords):
            return False
        decorator = decorator.func
    name = ast.unparse(decorator)
    return name.partition(".")[0] in aliases and name.rpartition(".")[2] == "jit"
