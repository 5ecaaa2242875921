"""A stand-in for the header of `at::Tensor`, with the methods that a source names and those that torch's headers call.

Each of six hundred is a declaration, a definition and an operator's structures to three front ends, a tenth of what the
core costs (docs/measurements.md). They are not virtual: whoever sees fewer of them sees the same tensor. A name that a
macro puts together is not seen; such a source does not compile, and is compiled with torch's own headers then.
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
"""What a source names, as macros; included by the stand-in, written for each source into a folder of its own."""

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
    """Writes the stand-in below `folder`; nothing where this torch's header looks otherwise. Raises OSError."""
    body = (torch_include / BODY).read_text(encoding="utf-8")
    operators: dict[str, set[str]] = {}
    for found in _DEFINED.finditer(body):
        operators.setdefault(found[1], set()).update(_USED.findall(found[2]))
    declared = {found[1] for found in _DECLARED.finditer(body)}
    headers = _headers(torch_include)
    if not operators or OPERATORS not in body or not declared >= operators.keys():
        return
    if not headers.keys() >= set().union(*operators.values()):
        return

    def guarded(found: re.Match[str]) -> str:
        return _where_named(found[1], found[0]) if found[1] in named else found[0]

    rest = _DECLARED.sub("", _DEFINED.sub("", body)) + (torch_include / BASE).read_text(encoding="utf-8")
    named = operators.keys() - set(_WORD.findall(rest)) - _called(torch_include)
    named = {name for name in named if not name.startswith("__")}
    includes = "#include <ATen/core/ATen_fwd.h>\n"
    for name, structures in sorted(operators.items()):
        text = "".join(f"#include <ATen/ops/{one}>\n" for one in sorted({headers[one] for one in structures}))
        includes += _where_named(name, text) if name in named else text
    body = _DECLARED.sub(guarded, _DEFINED.sub(guarded, body))
    own = f"#ifndef {HOST}\n#include <{METHODS}>\n#endif\n"
    (folder / BODY).parent.mkdir(parents=True, exist_ok=True)
    (folder / BODY).write_text(own + body.replace(OPERATORS, includes), encoding="utf-8")


def methods(names: Iterable[str]) -> str:
    """The text of METHODS for a source in which those names stand."""
    return "".join(f"#define {_macro(name)}\n" for name in sorted(names))


def _where_named(name: str, text: str) -> str:
    return f"#if defined({HOST}) || defined({_macro(name)})\n{text}#endif\n"


def _macro(name: str) -> str:
    return f"KERNEL_EVAL_METHOD_{name}"


def _headers(torch_include: Path) -> dict[str, str]:
    """The header of each operator's structure."""
    found = {}
    for header in (torch_include / "ATen" / "ops").glob("*_ops.h"):
        for structure in _STRUCTURE.findall(header.read_text(encoding="utf-8")):
            found[structure] = header.name
    return found


def _called(torch_include: Path) -> set[str]:
    """Whatever torch's own headers call as a method, or define as one of a tensor's."""
    called: set[str] = set()
    for pattern in _CALLERS:
        for header in torch_include.glob(pattern):
            if header != torch_include / BODY:
                called.update(_CALLED.findall(header.read_text(encoding="utf-8", errors="replace")))
    return called
