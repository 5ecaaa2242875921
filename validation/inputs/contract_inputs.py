"""A contract's arguments for one call, and a reference's inputs given to a candidate with its own contract."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch

from domain.contract import Argument, IOContract, TensorSpec
from domain.fault import InfrastructureFault, KernelFault
from domain.result import Status
from domain.value import TensorRef, leaves
from sandbox.protocol.arena import write
from validation.dtypes import torch_dtype, wire_name
from validation.inputs.tensor_source import FreshTensor
from validation.inputs.tensor_spec import allocate, is_random

GROUP, GROUP_BYTES = 64, 64 << 20
"""Sets that are drawn together at most: what is launched for a small one takes longer than what it does."""


class ContractInputs:
    """Draws the arguments of a contract: set 0 as the contract says, every further set under the job's secret."""

    def __init__(self, io: IOContract, device: str, secret: int | None) -> None:
        self.io = io
        self._device = device
        self._secret = secret
        self._tensors: dict[int, FreshTensor] = {}

    @property
    def repeats(self) -> bool:
        """True when fresh sets come out equal: no input tensor has random content."""
        return not any(
            is_random(argument.tensor_spec) and 0 not in argument.tensor_spec.shape
            for argument in self.io.args
            if argument.tensor_spec is not None and _is_input(argument)
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors of one set, gaps of strided ones included."""
        specs = [argument.tensor_spec for argument in self.io.args if argument.is_tensor and argument.tensor_spec]
        return sum(_span(spec) for spec in specs)

    def draw(self, fresh: int) -> list[Any]:
        """All arguments in contract order: tensors on the device, scalars as their values.

        Raises KernelFault naming the argument: CONTRACT_MISMATCH for a spec that contradicts itself, OUT_OF_MEMORY when
        the tensors do not fit. InfrastructureFault where the host has too little memory left for what would fit.
        """
        return [self._argument(argument, position, fresh) for position, argument in enumerate(self.io.args)]

    def drawn_together(self, numbers: range) -> range:
        """The first of these sets: as many as can be had as stacks at once, which are drawn now. Raises as `draw`."""
        tensors = [position for position, argument in enumerate(self.io.args) if argument.is_tensor]
        count = min([len(numbers), *(self._fresh(position).together(numbers.start) for position in tensors)])
        if count > 1:
            for position in tensors:
                if not self.io.args[position].is_blank:  # Which is asked for once, if at all.
                    self.stack(position, numbers.start, count)
        return numbers[:count]

    def lie_together(self, position: int, numbers: range) -> bool:
        """Whether `stack` gives that tensor argument of all of these sets at once."""
        return self._fresh(position).together(numbers.start) >= len(numbers)

    def stack(self, position: int, first: int, count: int) -> torch.Tensor:
        """That tensor argument of so many sets from that number on, which lie `together`. Raises as `draw`."""
        with _answered(self.io.args[position]):
            return self._fresh(position).stack(first, count)

    @cached_property
    def _group(self) -> int:
        return max(1, min(GROUP, GROUP_BYTES // max(self.nbytes, 1)))

    def _argument(self, argument: Argument, position: int, fresh: int) -> Any:
        if not argument.is_tensor:
            return argument.value
        with _answered(argument):
            return self._fresh(position).of(fresh)

    def _fresh(self, position: int) -> FreshTensor:
        argument = self.io.args[position]
        if argument.tensor_spec is None:
            raise _mismatch(f"argument {argument.name!r} is a tensor: give it a tensor_spec")
        if position not in self._tensors:
            self._tensors[position] = FreshTensor(
                argument.tensor_spec, self._device, self._secret, position, group=self._group, blank=argument.is_blank
            )
        return self._tensors[position]


@contextmanager
def _answered(argument: Argument) -> Iterator[None]:
    """Inside, what cannot be made is the contract's fault, and names the argument."""
    try:
        yield
    except ValueError as error:
        raise _mismatch(f"argument {argument.name!r}: {error}") from error
    except RuntimeError as error:
        if argument.tensor_spec is None or not _out_of_memory(error):
            raise
        told = f"argument {argument.name!r}, {_described(argument.tensor_spec)}, does not fit in memory"
        # On a card the kernels' own processes may have the rest of it. What the host has too little of, others took.
        if not isinstance(error, torch.OutOfMemoryError) and _span(argument.tensor_spec) < _host_bytes():
            raise InfrastructureFault(f"{told}, which has room for it when nobody else needs it") from error
        raise KernelFault(Status.OUT_OF_MEMORY, f"{told}; make it smaller", log=str(error)) from error


def arguments_for(
    candidate: IOContract, candidate_draw: list[Any], reference_io: IOContract | None, reference_draw: list[Any]
) -> list[Any]:
    """The candidate's arguments with the reference's inputs in the place of its own input and inout tensors.

    Arguments that both contracts name alike belong together, the others by their order among the input tensors; a
    reference without a contract (`reference_io` None: its source made the inputs) gives its tensors in order.
    Outputs and scalars stay the candidate's own, and so does a tensor of fixed content for which the reference has no
    counterpart (an accumulator of zeros). Values are copied where the candidate asks for another memory layout.

    Raises KernelFault (CONTRACT_MISMATCH) naming the argument and both shapes or dtypes.
    """
    given = _inputs_of(reference_io, reference_draw)
    arguments = list(candidate_draw)
    for index, source in counterparts(candidate, [name for name, _ in given]).items():
        spec = candidate.args[index].tensor_spec
        assert spec is not None
        arguments[index] = _as_declared(candidate.args[index].name, spec, candidate_draw[index], *given[source])
    return arguments


def counterparts(candidate: IOContract, given: Sequence[str | None]) -> dict[int, int]:
    """Index of the candidate's argument -> number of the reference's input tensor, which have those names.

    Raises KernelFault as `arguments_for`.
    """
    by_name = {name: source for source, name in enumerate(given) if name is not None}
    wanted = input_positions(candidate)
    pairs = {index: by_name[candidate.args[index].name] for index in wanted if candidate.args[index].name in by_name}
    unnamed = [index for index in wanted if index not in pairs]
    left = [source for source in range(len(given)) if source not in pairs.values()]
    # Fewer inputs to give than asked for: accumulators and work spaces are the candidate's own business.
    for keep in (_is_accumulator, _is_fixed):
        own = [index for index in unnamed if keep(candidate.args[index])]
        surplus = len(unnamed) - len(left)
        unnamed = [index for index in unnamed if index not in own[-surplus:]] if surplus > 0 else unnamed
    if len(unnamed) > len(left):
        names = ", ".join(repr(candidate.args[index].name) for index in unnamed[len(left) :])
        raise _mismatch(
            f"the candidate's contract takes {len(wanted)} input tensors, the reference has {len(given)}: nothing to "
            f"give as {names}. Name the arguments alike in both contracts, or give the extra ones fixed content"
        )
    if unnamed and len(unnamed) < len(left):
        raise _mismatch(
            f"the candidate's contract takes {len(wanted)} input tensors, the reference has {len(given)}, and their "
            "names do not tell which to leave out. Name the arguments alike in both contracts"
        )
    return pairs | dict(zip(unnamed, left, strict=False))


def input_positions(io: IOContract) -> list[int]:
    """Where a contract's input and inout tensors are among its arguments."""
    return [position for position, argument in enumerate(io.args) if _is_input(argument)]


def called_with(io: IOContract) -> list[int]:
    """Which of a contract's arguments a callable gets that has no contract: no outputs, and no launch constants."""
    return [
        position
        for position, argument in enumerate(io.args)
        if not argument.is_meta and not (argument.is_tensor and argument.role == "output")
    ]


def laid_out_anew(
    candidate: IOContract, candidate_draw: list[Any], reference_io: IOContract | None, reference_draw: list[Any]
) -> list[str]:
    """Names of the inputs that `arguments_for` copies into another memory layout than the reference has them in."""
    given = _inputs_of(reference_io, reference_draw)
    return [
        candidate.args[index].name
        for index, source in counterparts(candidate, [name for name, _ in given]).items()
        if _steps(candidate_draw[index]) != _steps(given[source][1])
    ]


def _steps(tensor: torch.Tensor) -> list[int]:
    """The strides that say something: those of dimensions of more than one element."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def _inputs_of(io: IOContract | None, drawn: list[Any]) -> list[tuple[str | None, torch.Tensor]]:
    if io is None:
        return [(None, tensor) for tensor in leaves(drawn, torch.Tensor)]
    return [(io.args[position].name, drawn[position]) for position in input_positions(io)]


def _as_declared(
    name: str, spec: TensorSpec, own: torch.Tensor, source_name: str | None, value: torch.Tensor
) -> torch.Tensor:
    """The reference's tensor in the candidate's layout."""
    if value.dtype != own.dtype or value.shape != own.shape:
        source = f"the reference's {source_name!r}" if source_name else "the reference's tensor in that place"
        found = f"shape {list(value.shape)} of dtype {wire_name(value.dtype)}"
        raise _mismatch(
            f"argument {name!r} is declared with {_described(spec)}, but {source} has {found}; make them agree"
        )
    if value.stride() == own.stride():
        return value
    target = allocate(spec, str(own.device))
    write(target, value)
    return target


def _is_input(argument: Argument) -> bool:
    return argument.is_tensor and argument.role != "output"


def _is_fixed(argument: Argument) -> bool:
    """Explicit content that no fresh set changes; an `empty` work space is one."""
    spec = argument.tensor_spec
    return spec is not None and (spec.data is not None or (spec.init is not None and not is_random(spec)))


def _is_accumulator(argument: Argument) -> bool:
    return _is_fixed(argument) and argument.role == "inout"


def _span(spec: TensorSpec) -> int:
    item_bytes = torch_dtype(spec.dtype).itemsize  # ValueError for one that nobody knows.
    if spec.strides is None or len(spec.strides) != len(spec.shape):
        return math.prod(spec.shape) * item_bytes
    return TensorRef(spec.dtype, spec.shape, spec.strides).span


def _described(spec: TensorSpec) -> str:
    return f"shape {list(spec.shape)} of dtype {spec.dtype}"


def _mismatch(message: str) -> KernelFault:
    return KernelFault(Status.CONTRACT_MISMATCH, message)


def _host_bytes() -> int:
    """All of the host's memory, whoever has it at this moment."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
