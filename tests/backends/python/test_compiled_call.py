"""What keeps a reference from being compiled, told from an error of the reference itself."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch

from backends.python.compiled_call import compiler_fault
from domain.result import Status

DYNAMO, INDUCTOR = import_module("torch._dynamo.exc"), import_module("torch._inductor.exc")


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause
    except Exception as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (DYNAMO.Unsupported("graph break in user code"), Status.COMPILE_ERROR, "graph break in user code"),
        (INDUCTOR.InvalidCxxCompiler(), Status.UNSUPPORTED, "this worker cannot compile it"),
        (INDUCTOR.TritonMissing(None), Status.UNSUPPORTED, "this worker cannot compile it"),
    ],
    ids=["Unsupported", "no C++ compiler", "no Triton"],
)
def test_an_error_of_the_compiler(error: Exception, status: Status, says: str) -> None:
    for found in (compiler_fault(raised(error)), compiler_fault(raised(RuntimeError("outer"), error))):
        assert found is not None and found.status is status and says in found.message


@pytest.mark.parametrize("error", [ValueError("its own"), torch.OutOfMemoryError("CUDA out of memory")])
def test_an_error_of_the_reference_is_none_of_the_compiler(error: Exception) -> None:
    assert compiler_fault(raised(error)) is None
