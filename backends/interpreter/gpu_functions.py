"""Gives Triton's interpreter functions that it lacks, or has it say that only a GPU has them."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

from backends.source.error_report import NotInterpreted

_WAITING = ("gdc_wait", "gdc_launch_dependents")
"""Order a launch after the one before it, which has ended in an interpreter."""
_OF_A_GPU = ("globaltimer", "smid", "num_threads", "num_warps")
_MEMBERS = "ceil cos erf exp exp2 floor log log2 rsqrt sin sqrt sqrt_rn"
"""Functions that Triton gives tensors too, and the interpreter replaces by the name of the module alone."""

_OPERATORS = {
    "mod": operator.mod,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
}
"""Operators that a constexpr has for its left side alone. On a GPU the other side is a constexpr too; here, an int."""


def install() -> None:
    """Patches this process and its forks."""
    # Sources may take them from either: these are two modules.
    for module in (tl.extra.cuda, importlib.import_module("triton.language.extra.cuda")):
        for name in _WAITING:
            setattr(module, name, lambda **_: None)
        for name in _OF_A_GPU:
            setattr(module, name, _refusal(f"tl.extra.cuda.{name}"))
    interpreter.interpreter_semantic.dot_scaled = _refusal("tl.dot_scaled")
    for name in _MEMBERS.split():
        setattr(tl.tensor, name, _member(name))
    for name, function in _OPERATORS.items():
        setattr(tl.constexpr, f"__r{name}__", _reflected(function))


def _refusal(name: str) -> Any:
    def refused(*_: Any, **__: Any) -> Any:
        raise NotInterpreted(name)

    return refused


def _member(name: str) -> Any:
    return lambda tensor, **_: getattr(tl.math, name)(tensor)


def _reflected(function: Callable[[Any, Any], Any]) -> Any:
    return lambda constant, number: tl.constexpr(function(number, constant.value))
