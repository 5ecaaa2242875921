"""A reference under torch.compile, as a baseline: compiling it, and what kept it from being compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from domain.fault import KernelFault, exception_chain
from domain.result import Lack, Status

COMPILER_MODULES = ("torch._dynamo", "torch._inductor", "torch._functorch")
NO_COMPILER = ("InvalidCxxCompiler", "TritonMissing", "GPUTooOldForTriton")
"""Exceptions of Inductor about the machine, not about the source."""


def compiled(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` under torch.compile with its defaults, for inputs of fixed shapes; the first call compiles it."""
    wrapped: Callable[..., Any] = torch.compile(call, dynamic=False)
    return wrapped


def graph_breaks() -> int:
    """How often the calls so far left the compiled graph. Raises KernelFault if nothing of them was compiled."""
    counters = torch._dynamo.utils.counters
    if not counters["stats"]["unique_graphs"]:
        reason = next(iter(counters["graph_break"]), "the calls run no operator of torch").splitlines()[0]
        raise KernelFault(Status.COMPILE_ERROR, f"torch.compile compiled no part of it: {reason}", compiled=False)
    return sum(counters["graph_break"].values())


def compiler_fault(error: BaseException) -> KernelFault | None:
    """The fault of an exception that torch.compile's own code raised; None for any other."""
    for link in exception_chain(error):
        if type(link).__name__ in NO_COMPILER:
            message = f"this worker cannot compile it: {_first_line(link)}"
            return KernelFault(Status.UNSUPPORTED, message, lacks=Lack.PART)
        if type(link).__module__.startswith(COMPILER_MODULES):
            message = f"torch.compile failed: {type(link).__name__}: {_first_line(link)}"
            return KernelFault(Status.COMPILE_ERROR, message, str(link))
    return None


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "without a message")
