"""Draws a contract's arguments for one call, and passes the reference's inputs to a candidate with its own contract."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch

from backends.dtypes import torch_dtype, wire_name
from domain.contract import FOLLOWING_KINDS, Argument, IOContract, TensorSpec
from domain.fault import InfrastructureFault, KernelFault
from domain.result import Status
from domain.value import TensorRef, leaves
from sandbox.protocol.arena import write
from validation.inputs.tensor_source import TensorSource
from validation.inputs.tensor_spec import allocate, is_random

GROUP, GROUP_BYTES = 64, 64 << 20
"""Maximum number and bytes of input sets drawn together: launching costs more than drawing a small set."""

NO_OUTPUT = 'no argument has `"role": "output"`: give it to the one that the kernel writes. As it is,'


class ContractInputs:
    """Draws the arguments of a contract: set 0 as the contract says, every further set under the job's secret."""

    def __init__(self, io: IOContract, device: str, secret: int | None) -> None:
        self.io = io
        self._device = device
        self._secret = secret
        self._tensors: dict[int, TensorSource] = {}

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

    def draw(self, set_number: int) -> list[Any]:
        """All arguments in contract order: tensors on the device, scalars as their values.

        Raises KernelFault naming the argument: CONTRACT_MISMATCH for a spec that contradicts itself, OUT_OF_MEMORY when
        the tensors do not fit. Raises InfrastructureFault where they would fit, had other processes not taken the
        host's memory.
        """
        return [self._argument(argument, position, set_number) for position, argument in enumerate(self.io.args)]

    def draw_ahead(self, numbers: range) -> range:
        """Draws as many of these sets as one stack can hold, and returns their numbers. Raises as `draw` does."""
        tensors = [position for position, argument in enumerate(self.io.args) if argument.is_tensor]
        count = min([len(numbers), *(self._source(position).stackable(numbers.start) for position in tensors)])
        if count > 1:
            for position in tensors:
                if not self.io.args[position].is_blank:  # Its stack is asked for at most once.
                    self.stack(position, numbers.start, count)
        return numbers[:count]

    def can_stack(self, position: int, numbers: range) -> bool:
        """Whether `stack` can return this tensor argument for all of these sets at once."""
        return self._source(position).stackable(numbers.start) >= len(numbers)

    def stack(self, position: int, first: int, count: int) -> torch.Tensor:
        """One tensor argument of `count` sets from `first` on, where `can_stack` allows it. Raises as `draw` does."""
        with _blaming_contract(self.io.args[position]):
            return self._source(position).stack(first, count)

    @cached_property
    def _group(self) -> int:
        return max(1, min(GROUP, GROUP_BYTES // max(self.nbytes, 1)))

    def _argument(self, argument: Argument, position: int, set_number: int) -> Any:
        if not argument.is_tensor:
            return argument.value
        with _blaming_contract(argument):
            return self._source(position).draw(set_number)

    def _source(self, position: int) -> TensorSource:
        argument = self.io.args[position]
        if argument.tensor_spec is None:
            raise _mismatch(f"argument {argument.name!r} is a tensor: give it a tensor_spec")
        if position not in self._tensors:
            self._tensors[position] = TensorSource(
                argument.tensor_spec,
                self._device,
                self._secret,
                position,
                group=self._group,
                blank=argument.is_blank,
                of=self._source_of(argument.tensor_spec),
            )
        return self._tensors[position]

    def _source_of(self, spec: TensorSpec) -> TensorSource | None:
        if spec.data is not None or spec.init is None or spec.init.of is None or spec.init.kind not in FOLLOWING_KINDS:
            return None
        return self._source([argument.name for argument in self.io.args].index(spec.init.of))


@contextmanager
def _blaming_contract(argument: Argument) -> Iterator[None]:
    """Turns a failure to make a tensor into the contract's fault, and names the argument."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise _mismatch(f"argument {argument.name!r}: {error}") from error
    except RuntimeError as error:
        is_short = isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
        if argument.tensor_spec is None or not is_short:
            raise
        problem = f"argument {argument.name!r}, {_described(argument.tensor_spec)}, does not fit in memory"
        # On a GPU the kernels' own processes may hold the rest. On the host, a shortage means that other processes took
        # it.
        host_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if not isinstance(error, torch.OutOfMemoryError) and _span(argument.tensor_spec) < host_bytes:
            raise InfrastructureFault(f"{problem}, which has room for it when nobody else needs it") from error
        raise KernelFault(Status.OUT_OF_MEMORY, f"{problem}; make it smaller", log=str(error)) from error


def arguments_for(
    candidate: IOContract, candidate_draw: list[Any], reference_io: IOContract | None, reference_draw: list[Any]
) -> list[Any]:
    """The candidate's arguments, with the reference's inputs in place of the candidate's input and inout tensors.

    Arguments with the same name in both contracts belong together; the others match by their order among the input
    tensors. A reference without a contract (`reference_io` None: its source made the inputs) gives its tensors in
    order. Outputs and scalars stay the candidate's. A fixed tensor without a counterpart in the reference (an
    accumulator of zeros) stays too. Values are copied where the candidate asks for another memory layout.

    Raises KernelFault (CONTRACT_MISMATCH) naming the argument and both shapes or dtypes.
    """
    inputs = _inputs_of(reference_io, reference_draw)
    arguments = list(candidate_draw)
    for index, source in match_arguments(candidate, [name for name, _ in inputs]).items():
        spec = candidate.args[index].tensor_spec
        assert spec is not None
        arguments[index] = _as_declared(candidate.args[index].name, spec, candidate_draw[index], *inputs[source])
    return arguments


def match_arguments(candidate: IOContract, source_names: Sequence[str | None]) -> dict[int, int]:
    """Maps the index of each candidate argument to the number of the reference's input tensor; `source_names` are the
    latter's names.

    Raises KernelFault as `arguments_for` does.
    """
    by_name = {name: source for source, name in enumerate(source_names) if name is not None}
    positions = input_positions(candidate)
    pairs = {index: by_name[candidate.args[index].name] for index in positions if candidate.args[index].name in by_name}
    unnamed = [index for index in positions if index not in pairs]
    unused = [source for source in range(len(source_names)) if source not in pairs.values()]
    # Too few inputs: the candidate initialises its accumulators and work spaces itself.
    for keep in (_is_accumulator, _is_fixed):
        initialised = [index for index in unnamed if keep(candidate.args[index])]
        surplus = len(unnamed) - len(unused)
        unnamed = [index for index in unnamed if index not in initialised[-surplus:]] if surplus > 0 else unnamed
    if len(unnamed) > len(unused):
        names = ", ".join(repr(candidate.args[index].name) for index in unnamed[len(unused) :])
        role = "" if any(argument.is_output for argument in candidate.args) else f"{NO_OUTPUT} "
        raise _mismatch(
            f"{role}the candidate's contract takes {len(positions)} input tensors, the reference has "
            f"{len(source_names)}: nothing to give as {names}. Name the arguments alike in both, or give the extra "
            "ones fixed content"
        )
    if unnamed and len(unnamed) < len(unused):
        raise _mismatch(
            f"the candidate's contract takes {len(positions)} input tensors, the reference has {len(source_names)}, "
            "and their names do not tell which to leave out. Name the arguments alike in both"
        )
    return pairs | dict(zip(unnamed, unused, strict=False))


def input_positions(io: IOContract) -> list[int]:
    """The positions of a contract's input and inout tensors among its arguments."""
    return [position for position, argument in enumerate(io.args) if _is_input(argument)]


def plain_call_positions(io: IOContract) -> list[int]:
    """Positions of the arguments that a callable without a contract gets: neither outputs nor launch constants."""
    return [
        position
        for position, argument in enumerate(io.args)
        if not argument.is_meta and not (argument.is_tensor and argument.role == "output")
    ]


def inputs_needing_copy(
    candidate: IOContract, candidate_draw: list[Any], reference_io: IOContract | None, reference_draw: list[Any]
) -> list[str]:
    """Names of the inputs that `arguments_for` copies because the candidate asks for another memory layout."""
    inputs = _inputs_of(reference_io, reference_draw)
    return [
        candidate.args[index].name
        for index, source in match_arguments(candidate, [name for name, _ in inputs]).items()
        if _steps(candidate_draw[index]) != _steps(inputs[source][1])
    ]


def _steps(tensor: torch.Tensor) -> list[int]:
    """The strides that matter: those of dimensions with more than one element."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def _inputs_of(io: IOContract | None, drawn: list[Any]) -> list[tuple[str | None, torch.Tensor]]:
    if io is None:
        return [(None, tensor) for tensor in leaves(drawn, torch.Tensor)]
    return [(io.args[position].name, drawn[position]) for position in input_positions(io)]


def _as_declared(
    name: str, spec: TensorSpec, declared: torch.Tensor, source_name: str | None, value: torch.Tensor
) -> torch.Tensor:
    """The reference's tensor in the candidate's layout."""
    if value.dtype != declared.dtype or value.shape != declared.shape:
        source = f"the reference's {source_name!r}" if source_name else "the reference's tensor in that place"
        actual = f"shape {list(value.shape)} of dtype {wire_name(value.dtype)}"
        raise _mismatch(
            f"argument {name!r} is declared with {_described(spec)}, but {source} has {actual}; make them agree"
        )
    if value.stride() == declared.stride():
        return value
    target = allocate(spec, str(declared.device))
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
    item_bytes = torch_dtype(spec.dtype).itemsize  # Raises ValueError for an unknown dtype.
    if spec.strides is None or len(spec.strides) != len(spec.shape):
        return math.prod(spec.shape) * item_bytes
    return TensorRef(spec.dtype, spec.shape, spec.strides).span


def _described(spec: TensorSpec) -> str:
    return f"shape {list(spec.shape)} of dtype {spec.dtype}"


def _mismatch(message: str) -> KernelFault:
    return KernelFault(Status.CONTRACT_MISMATCH, message)
