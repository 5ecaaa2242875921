"""A kernel type in Python may give its functions other arrays than torch tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import torch

from backends.base import NO_REFERENCE, Executable
from backends.python.base import PythonBackend
from backends.source.entry_point import Entry
from domain.kernel import Kernel
from domain.value import replace
from tests.backends.loading import CPU, SEED, kernel, tensor

SOURCE = """
import numpy as np

def kernel_fn(x, y):
    return x.astype(np.float32) + y

def double(x, out):
    np.multiply(x, 2, out=out)

def get_inputs():
    return [np.random.randn(4).astype(np.float32), np.ones(4, np.float32)]
"""


class ArrayBackend(PythonBackend):
    """Calls functions with numpy arrays, which share the memory of the tensors."""

    def entry(self, module: ModuleType, kernel: Kernel) -> Entry:
        entry = super().entry(module, kernel)
        if hasattr(module, "get_inputs"):
            vars(module)["get_inputs"] = _returning_tensors(module.get_inputs)
        return Entry(entry.label, _taking_arrays(entry.target))


def _taking_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*replace(list(args), torch.Tensor, torch.Tensor.numpy))

    return call


def _returning_tensors(maker: Callable[[], Any]) -> Callable[[], Any]:
    @functools.wraps(maker)
    def make() -> Any:
        return replace(maker(), numpy.ndarray, torch.from_numpy)

    return make


def _loaded(submitted: Kernel, folder: Path) -> Executable:
    backend = ArrayBackend()
    return backend.load(submitted, folder, CPU, backend.build(submitted, folder, CPU), NO_REFERENCE, SEED)


def test_a_backend_converts_the_arguments_and_the_sources_own_inputs(tmp_path: Path) -> None:
    executable = _loaded(kernel(SOURCE), tmp_path)
    inputs = executable.own_inputs(SEED)
    assert inputs is not None
    assert all(isinstance(value, torch.Tensor) for value in inputs)
    output = executable.call(inputs)
    assert isinstance(output, numpy.ndarray)
    assert torch.equal(torch.from_numpy(output), inputs[0] + inputs[1])


def test_its_function_writes_into_the_contracts_output(tmp_path: Path) -> None:
    io = {"args": [tensor("x", 3), tensor("out", 3, role="output")]}
    output = torch.zeros(3)
    assert _loaded(kernel(SOURCE, io=io, function_name="double"), tmp_path).call([torch.ones(3), output]) is None
    assert output.tolist() == [2.0, 2.0, 2.0]


def test_inputs_are_inferred_by_the_wrapped_functions_signature(tmp_path: Path) -> None:
    executable = _loaded(kernel(SOURCE.partition("def get_inputs")[0]), tmp_path)
    inferred = executable.inferred_inputs(SEED)
    assert inferred is not None
    inputs, _ = inferred
    assert len(inputs) == 2 and all(isinstance(value, torch.Tensor) for value in inputs)
