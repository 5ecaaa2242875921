"""A call's outputs as tensors: flattened, checked for their device, and copied into the referee's slots."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy
import torch

from backends.base import Target
from backends.dtypes import TORCH_DTYPES
from domain import value as values
from domain.fault import KernelFault, OutputFault
from domain.result import Status
from domain.value import MAX_DEPTH, CodecError, TensorRef
from sandbox.protocol.arena import Arena, begins_in, copy_all, describe, view

CROSSING = frozenset(TORCH_DTYPES.values())
"""Element types that cross. Compared by identity and not by name, because this runs for every call's outputs."""

Keys = tuple[Any, ...] | None
"""The keys of one mapping in insertion order; None if the mapping is to be read in its own order."""


def tensors_of(result: Any, target: Target, keys: Sequence[Keys] = ()) -> list[torch.Tensor]:
    """The tensors of a nested output, depth first. Numbers become 0-d tensors; None and text are omitted.

    `keys` are those of an earlier output's mappings, depth first: this output's members are read in that order too.
    Raises KernelFault (WRONG_RESULT) for a tensor on another device, OutputFault for a value that cannot be compared.
    """
    try:
        return _tensors_of(result, target, keys)
    except CodecError as error:
        raise OutputFault(f"a value cannot cross to the referee: {error}") from error


def _tensors_of(result: Any, target: Target, keys: Sequence[Keys]) -> list[torch.Tensor]:
    leaves = [result] if isinstance(result, torch.Tensor) else _flattened(result, MAX_DEPTH, iter(keys))
    tensors, kind = [_tensor(leaf, target) for leaf in leaves], target.device.partition(":")[0]
    for index, tensor in enumerate(tensors):
        if tensor.device.type != kind:
            raise KernelFault(Status.WRONG_RESULT, f"output {index} is on {tensor.device}, expected on {target.device}")
        if tensor.layout is not torch.strided:
            raise _not_strided(tensor)
        _check_dtype(tensor)
    return tensors


def deliver(outputs: list[list[torch.Tensor]], slots: list[list[torch.Tensor]]) -> None:
    """Copies every call's outputs into its slots in one batch: separate copies of small tensors cost as much as calls.

    Raises OutputFault if a call's outputs differ from the first call's in number, shape or dtype.
    """
    sources, targets = [], []
    for tensors, call_slots in zip(outputs, slots, strict=True):
        if len(tensors) != len(call_slots):
            raise _changed(f"{len(call_slots)} outputs", f"{len(tensors)}")
        for tensor, slot in zip(tensors, call_slots, strict=True):
            if tensor.shape != slot.shape or tensor.dtype != slot.dtype:
                raise _changed(f"{slot.dtype} {tuple(slot.shape)}", f"{tensor.dtype} {tuple(tensor.shape)}")
            sources.append(tensor)
            targets.append(slot)
    copy_all(targets, sources)


def portable(value: Any, target: Target) -> tuple[Any, list[torch.Tensor]]:
    """A value's wire form, whose tensors have no offsets yet, and those tensors on the target's device."""
    detached: list[torch.Tensor] = []

    def detach(tensor: torch.Tensor) -> TensorRef:
        if tensor.layout != torch.strided:
            raise _not_strided(tensor)
        _check_dtype(tensor)
        detached.append(_writable(tensor.detach().to(target.device).resolve_conj().resolve_neg()))
        return describe(detached[-1])

    return values.encode(values.replace(value, torch.Tensor, detach)), detached


def put(tensors: list[torch.Tensor], memory: torch.Tensor, refs: list[TensorRef], count: int, step: int) -> None:
    """Copies the tensors of `count` values with one structure, in one batch as `deliver` does.

    The first value's tensors go to `refs`; each later value's go `step` bytes behind the one before.
    """
    copies = [view(memory, ref.times(count, step)).unbind() for ref in refs]
    copy_all([copy for row in zip(*copies, strict=True) for copy in row], tensors)


def outside(arena: Arena | None, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors, with copies of those that lie in the arena: an output may be a view of an argument."""
    if arena is None:
        return tensors
    return [tensor.clone() if begins_in(arena.bytes, tensor) else tensor for tensor in tensors]


def _not_strided(tensor: torch.Tensor) -> OutputFault:
    return OutputFault(f"{tensor.layout} tensors do not cross; return a dense, strided one (.to_dense())")


def _changed(first: str, now: str) -> OutputFault:
    return OutputFault(
        f"the output changed from {first} to {now} between calls; outputs whose shape depends on the data cannot be "
        "evaluated: return a fixed shape",
    )


def _writable(tensor: torch.Tensor) -> torch.Tensor:
    """The same content with memory for every element: an expanded tensor cannot be copied into."""
    return tensor.contiguous() if repeats(tensor) else tensor


def repeats(tensor: torch.Tensor) -> bool:
    """Whether a dimension is expanded, so that several elements share memory."""
    return any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _flattened(result: Any, depth: int, keys: Iterator[Keys]) -> list[Any]:
    if depth < 0:
        raise CodecError(f"an output is at most {MAX_DEPTH} levels deep, and must not contain itself")
    match result:
        case torch.Tensor() | bool() | int() | float() | complex() | numpy.ndarray() | numpy.generic():
            return [result]
        case None | str() | bytes():
            return []
        case tuple() | list():
            return _all_flattened(result, depth - 1, keys)
        case Mapping():
            return _all_flattened(_in_order(result, next(keys, None)), depth - 1, keys)
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        parts = [getattr(result, field.name) for field in dataclasses.fields(result)]
        return _all_flattened(parts, depth - 1, keys)
    raise OutputFault(
        f"the output holds an object of type {type(result).__name__}, which cannot be compared: return tensors or "
        "numbers, alone or in tuples, lists, dicts and dataclasses",
    )


def _all_flattened(members: Iterable[Any], depth: int, keys: Iterator[Keys]) -> list[Any]:
    leaves: list[Any] = []
    for member in members:
        # Most members are tensors, and this runs on the clock for each call's outputs.
        leaves += [member] if isinstance(member, torch.Tensor) else _flattened(member, depth, keys)
    return leaves


def _in_order(result: Mapping[Any, Any], keys: Keys) -> Iterable[Any]:
    """The members of a mapping in the order of `keys`, if given: the insertion order may change between calls."""
    if keys is None or tuple(result) == keys:
        return result.values()
    if any(key not in keys and not isinstance(item, str | bytes | None) for key, item in result.items()):
        raise _changed(f"a dict with the keys {list(keys)}", f"one with {list(result)}")
    return [result.get(key) for key in keys]


def _tensor(leaf: Any, target: Target) -> torch.Tensor:
    match leaf:
        case torch.Tensor():
            return leaf.detach()
        case numpy.ndarray():
            return _from_numpy(numpy.ascontiguousarray(leaf)).view(leaf.shape)
        case numpy.generic():
            dtype = _from_numpy(numpy.asarray([leaf])).dtype
            return torch.tensor(leaf.item(), dtype=dtype, device=target.device)
        case int() if not -(2**63) <= leaf < 2**63:
            raise CodecError("an integer output has to fit in 64 bits")
    return torch.tensor(leaf, device=target.device)


def _from_numpy(array: Any) -> torch.Tensor:
    try:
        return torch.from_numpy(array)
    except TypeError as error:
        raise OutputFault(f"the output holds numpy values of type {array.dtype}: return numbers") from error


def _check_dtype(tensor: torch.Tensor) -> None:
    if tensor.is_nested:
        raise OutputFault("nested tensors do not cross; return one padded tensor, or a list of plain ones")
    if tensor.dtype not in CROSSING:
        raise CodecError(f"{tensor.dtype} tensors do not cross; dequantize or convert them")
