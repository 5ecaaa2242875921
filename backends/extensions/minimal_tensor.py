"""Replaces the header of `at::Tensor`, keeping only the methods that a source names or torch's headers call.

Each of six hundred methods costs three front ends a declaration, a definition and an operator's structures: a tenth of
the core's cost (docs/measurements.md). Methods are not virtual, so a class with fewer declarations has the same layout.
A method name assembled by a macro is missed; the source then fails to compile and is compiled with torch's own headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from backends.extensions.minimal_headers import HOST

BODY = "ATen/core/TensorBody.h"
BASE = "ATen/core/TensorBase.h"
OPERATORS = "#include <ATen/MethodOperators.h>\n"
METHODS = "kernel_eval_methods.h"
"""A header of macros for the names in a source, generated for each source in a folder of its own; the replacement
includes it."""

_DEFINED = re.compile(r"^// aten::[^\n]*\ninline [^\n]+? Tensor::(\w+)\([^\n]*\) const \{\n(.*?)^\}\n", re.M | re.S)
_DECLARED = re.compile(r"^  [\w:&<>, *]+?[ &](\w+)\([^\n]*\) const;\n", re.M)
_STRUCTURE = re.compile(r"^struct TORCH_API (\w+) \{", re.M)
_USED = re.compile(r"\bat::_ops::(\w+)::call")
_CALLED = re.compile(r"(?:\.|->|\bTensor::)\s*(\w+)\s*\(")
_WORD = re.compile(r"[A-Za-z_]\w*")
_CALLERS = (
    *("ATen/*.h", "ATen/core/**/*.h", "ATen/cuda/*.h", "ATen/detail/*.h"),
    *("torch/*.h", "torch/csrc/*.h", "torch/csrc/autograd/**/*.h", "torch/csrc/utils/*.h"),
    *("torch/csrc/api/include/torch/*.h", "torch/csrc/api/include/torch/detail/*.h"),
)
"""Headers that a lean source may include and whose inline code calls methods."""


def write(folder: Path, torch_include: Path) -> None:
    """Writes the replacement below `folder`; nothing where this torch's header looks different. Raises OSError."""
    body = (torch_include / BODY).read_text(encoding="utf-8")
    operators: dict[str, set[str]] = {}
    for match in _DEFINED.finditer(body):
        operators.setdefault(match[1], set()).update(_USED.findall(match[2]))
    declared = {match[1] for match in _DECLARED.finditer(body)}
    headers = _headers(torch_include)
    if not operators or OPERATORS not in body or not declared >= operators.keys():
        return
    if not headers.keys() >= set().union(*operators.values()):
        return

    def guarded(match: re.Match[str]) -> str:
        return _where_named(match[1], match[0]) if match[1] in named else match[0]

    remaining = _DECLARED.sub("", _DEFINED.sub("", body)) + (torch_include / BASE).read_text(encoding="utf-8")
    named = operators.keys() - set(_WORD.findall(remaining)) - _called(torch_include)
    named = {name for name in named if not name.startswith("__")}
    includes = "#include <ATen/core/ATen_fwd.h>\n"
    for name, structures in sorted(operators.items()):
        text = "".join(
            f"#include <ATen/ops/{header}>\n" for header in sorted({headers[header] for header in structures})
        )
        includes += _where_named(name, text) if name in named else text
    body = _DECLARED.sub(guarded, _DEFINED.sub(guarded, body))
    own = f"#ifndef {HOST}\n#include <{METHODS}>\n#endif\n"
    (folder / BODY).parent.mkdir(parents=True, exist_ok=True)
    (folder / BODY).write_text(own + body.replace(OPERATORS, includes), encoding="utf-8")


def methods(names: Iterable[str]) -> str:
    """The text of METHODS for a source that contains these names."""
    return "".join(f"#define {_macro(name)}\n" for name in sorted(names))


def _where_named(name: str, text: str) -> str:
    return f"#if defined({HOST}) || defined({_macro(name)})\n{text}#endif\n"


def _macro(name: str) -> str:
    return f"KERNEL_EVAL_METHOD_{name}"


def _headers(torch_include: Path) -> dict[str, str]:
    """Maps each operator's structure to its header."""
    by_structure = {}
    for header in (torch_include / "ATen" / "ops").glob("*_ops.h"):
        for structure in _STRUCTURE.findall(header.read_text(encoding="utf-8")):
            by_structure[structure] = header.name
    return by_structure


def _called(torch_include: Path) -> set[str]:
    """The methods that torch's own headers call or define on a tensor."""
    called: set[str] = set()
    for pattern in _CALLERS:
        for header in torch_include.glob(pattern):
            if header != torch_include / BODY:
                called.update(_CALLED.findall(header.read_text(encoding="utf-8", errors="replace")))
    return called
