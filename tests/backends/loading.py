"""Building and loading a Python source as the builder and the runner do, in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch

from backends.base import Artifact, Executable, ReferenceArguments, Target
from backends.registry import backend
from domain.contract import IOContract
from domain.fault import KernelFault
from domain.kernel import Kernel, KernelType

CPU = Target("cpu", None)
SEED = 7

Load = Callable[..., Executable]


def kernel(source: str, kernel_type: str = "torch", io: dict[str, Any] | None = None, **metadata: Any) -> Kernel:
    """A kernel of that source, indented as the test has it."""
    contract = IOContract.from_wire(io) if io is not None else None
    return Kernel(dedent(source), KernelType(kernel_type), contract, metadata)


def loaded(
    given: Kernel, folder: Path, target: Target = CPU, init: list[Any] | None = None, like: Executable | None = None
) -> Executable:
    """Built, then loaded: with constructor arguments of a reference, or all that `like` gives as one."""
    with torch.random.fork_rng():
        serving = backend(given.kernel_type)
        artifact = serving.build(given, folder, target)
        arguments = like.arguments() if like is not None else ReferenceArguments(init)
        return serving.load(given, folder, target, artifact, arguments, SEED)


def built(given: Kernel, folder: Path, target: Target = CPU) -> Artifact:
    return backend(given.kernel_type).build(given, folder, target)


def refusal(given: Kernel, folder: Path, target: Target = CPU) -> KernelFault:
    """The fault that building or loading ends in."""
    with pytest.raises(KernelFault) as caught:
        loaded(given, folder, target)
    return caught.value


def tensor(name: str, *shape: int, role: str = "input") -> dict[str, Any]:
    return {"name": name, "type": "tensor", "role": role, "tensor_spec": {"shape": list(shape)}}
