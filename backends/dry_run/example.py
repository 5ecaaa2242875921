"""The arguments of a dry run's constructor and call: those of the task, as far as a builder knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from backends.base import NO_REFERENCE, Executable, ReferenceArguments
from backends.dry_run.fake_tensors import DEVICE
from backends.languages import registry
from backends.source import init_args
from domain import value as values
from domain.contract import IOContract, TensorSpec
from domain.kernel import Kernel
from domain.value import CodecError, TensorRef, Value

_WORDS = ("triton", "cpp_extension")
"""A source without any of these, and without a language, compiles nothing when it is called."""
SEED = 0
UNKNOWN = "unknown"
"""The wire form of the example of a reference that did not give one."""


def may_compile(kernel: Kernel) -> bool:
    """Whether a call of the source may compile something."""
    words = any(word in kernel.source_code for word in _WORDS) or bool(registry.imported(kernel.source_code))
    return kernel.host_function is None and words


@dataclass(frozen=True)
class Example:
    """The arguments that a candidate borrows of a reference, and its inputs with a TensorRef for each tensor.

    With `unknown` there is a reference whose inputs nobody knows.
    """

    borrowed: ReferenceArguments = NO_REFERENCE
    inputs: list[Any] | None = None
    unknown: bool = False

    @classmethod
    def from_wire(cls, wire: Any) -> Example:
        """Parses what `wire` made. Raises ValueError."""
        match values.decode(wire):
            case None:
                return cls()
            case str():
                return cls(unknown=True)
            case (borrowed, None | list() as inputs):
                return cls(init_args.from_wire(borrowed), inputs)
        raise CodecError("an example is a pair of constructor arguments and inputs")

    @staticmethod
    def wire(kernel: Kernel, executable: Executable, args: list[Any] | None) -> Any:
        """The wire form of a reference's example for a candidate; None where it does not cross.

        A candidate without a contract gets neither the outputs nor the launch constants of the reference's contract.
        """
        if args is not None and kernel.io is not None:
            args = [
                value
                for argument, value in zip(kernel.io.args, args, strict=True)
                if not argument.is_meta and not (argument.is_tensor and argument.role == "output")
            ]
        try:
            inputs = values.encode(values.replace(args, torch.Tensor, _described))
            return {"$": "tuple", "items": [init_args.to_wire(executable.arguments()), inputs]}
        except CodecError:
            return None

    def arguments(self, kernel: Kernel, executable: Executable) -> list[Any] | None:
        """The arguments of a call, whose tensors have no content; None if they are unknown.

        As in the job: the contract's, else the reference's, else the source's own or those that it can be called with.
        """
        if kernel.io is not None:
            return _of_contract(kernel.io)
        if self.inputs is not None:
            made: list[Any] = values.replace(self.inputs, TensorRef, _tensor)
            return made
        own = executable.own_inputs(SEED)
        if own is not None:
            return own
        inferred = executable.inferred_inputs(SEED)
        return None if inferred is None else inferred[0]


def _of_contract(io: IOContract) -> list[Any] | None:
    specs = [argument.tensor_spec for argument in io.args if argument.is_tensor]
    if None in specs:
        return None
    return [
        _tensor(_laid_out(argument.tensor_spec))
        if argument.tensor_spec is not None and argument.is_tensor
        else argument.value
        for argument in io.args
    ]


def _laid_out(spec: TensorSpec) -> TensorRef:
    strides = spec.strides if spec.strides is not None else torch.empty(spec.shape, device="meta").stride()
    return TensorRef(spec.dtype, spec.shape, tuple(strides))


def _tensor(ref: TensorRef) -> torch.Tensor:
    return torch.empty_strided(ref.shape, ref.strides, dtype=getattr(torch, ref.dtype), device=DEVICE)


def _described(tensor: torch.Tensor) -> Value:
    return TensorRef(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tuple(tensor.stride()))
