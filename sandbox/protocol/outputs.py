"""What a call gave, as tensors: flattened, checked for where they lie, delivered into the referee's slots."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy
import torch

from backends.base import Target
from domain import value as values
from domain.dtype import ITEM_BYTES
from domain.fault import KernelFault, OutputFault
from domain.result import Status
from domain.value import MAX_DEPTH, CodecError, TensorRef
from sandbox.protocol.arena import Arena, copy_all, describe, lies_in, view

CROSSING = frozenset(getattr(torch, name) for name in ITEM_BYTES if hasattr(torch, name))
"""Element types; looked up for every call's answer, and so by themselves and not by their names."""

Keys = tuple[Any, ...] | None
"""Of a mapping, in the order in which they were filled in; None for those by which it is not to be read."""


def tensors_of(result: Any, target: Target, keys: Sequence[Keys] = ()) -> list[torch.Tensor]:
    """The tensors of a nested answer, depth first, numbers as 0-d tensors; None and text carry no answer.

    `keys` are those of an earlier answer's mappings, depth first, in whose order this one's members come too.
    Raises KernelFault: WRONG_RESULT for a tensor on another device, OutputFault for what cannot be compared.
    """
    try:
        return _tensors_of(result, target, keys)
    except CodecError as error:
        raise OutputFault(f"a value cannot cross to the referee: {error}") from error


def _tensors_of(result: Any, target: Target, keys: Sequence[Keys]) -> list[torch.Tensor]:
    leaves = [result] if isinstance(result, torch.Tensor) else _flattened(result, MAX_DEPTH, iter(keys))
    found, kind = [_tensor(leaf, target) for leaf in leaves], target.device.partition(":")[0]
    for index, tensor in enumerate(found):
        if tensor.device.type != kind:
            raise KernelFault(Status.WRONG_RESULT, f"output {index} is on {tensor.device}, expected on {target.device}")
        if tensor.layout is not torch.strided:
            raise _not_strided(tensor)
        _check_dtype(tensor)
    return found


def deliver(answers: list[list[torch.Tensor]], slots: list[list[torch.Tensor]]) -> None:
    """Copies every call's answer into its slots, together: one by one, copies of small tensors cost as much as calls.

    Raises OutputFault when an answer does not look like the first one did.
    """
    sources, targets = [], []
    for tensors, places in zip(answers, slots, strict=True):
        if len(tensors) != len(places):
            raise _changed(f"{len(places)} outputs", f"{len(tensors)}")
        for tensor, place in zip(tensors, places, strict=True):
            if tensor.shape != place.shape or tensor.dtype != place.dtype:
                raise _changed(f"{place.dtype} {tuple(place.shape)}", f"{tensor.dtype} {tuple(tensor.shape)}")
            sources.append(tensor)
            targets.append(place)
    copy_all(targets, sources)


def portable(value: Any, target: Target) -> tuple[Any, list[torch.Tensor]]:
    """A value's wire form, its tensors with sizes but no places yet, and those tensors, on the target's device."""
    kept: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> TensorRef:
        if tensor.layout != torch.strided:
            raise _not_strided(tensor)
        _check_dtype(tensor)
        kept.append(_writable(tensor.detach().to(target.device).resolve_conj().resolve_neg()))
        return describe(kept[-1])

    return values.encode(values.replace(value, torch.Tensor, keep)), kept


def put(tensors: list[torch.Tensor], memory: torch.Tensor, refs: list[TensorRef], count: int, step: int) -> None:
    """Copies the tensors of so many values of one form, all together as `deliver` does.

    The first one's to where those lie, each next one's `step` bytes behind the last one's.
    """
    places = [view(memory, ref.times(count, step)).unbind() for ref in refs]
    copy_all([place for each in zip(*places, strict=True) for place in each], tensors)


def outside(arena: Arena | None, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same, with copies of those that lie in the arena: an answer may be a view of an argument."""
    if arena is None:
        return tensors
    return [tensor.clone() if lies_in(arena.bytes, tensor) else tensor for tensor in tensors]


def _not_strided(tensor: torch.Tensor) -> OutputFault:
    return OutputFault(f"{tensor.layout} tensors do not cross; only strided ones do")


def _changed(first: str, now: str) -> OutputFault:
    return OutputFault(
        f"the answer changed from {first} to {now} between calls; outputs whose shape depends on the data cannot be "
        "evaluated: return a fixed shape",
    )


def _writable(tensor: torch.Tensor) -> torch.Tensor:
    """The same content with a place for every element: an expanded tensor has one for many, and none to copy into."""
    return tensor.contiguous() if repeats(tensor) else tensor


def repeats(tensor: torch.Tensor) -> bool:
    """Whether a dimension is expanded, so that many elements are one in memory."""
    return any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _flattened(result: Any, depth: int, keys: Iterator[Keys]) -> list[Any]:
    if depth < 0:
        raise CodecError(f"an answer is at most {MAX_DEPTH} deep, and must not contain itself")
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
        f"the answer holds an object of type {type(result).__name__}, which cannot be compared: return tensors or "
        "numbers, alone or in tuples, lists, dicts and dataclasses",
    )


def _all_flattened(members: Iterable[Any], depth: int, keys: Iterator[Keys]) -> list[Any]:
    found: list[Any] = []
    for member in members:
        # Most are tensors, and each call's answer is looked at on the clock.
        found += [member] if isinstance(member, torch.Tensor) else _flattened(member, depth, keys)
    return found


def _in_order(result: Mapping[Any, Any], keys: Keys) -> Iterable[Any]:
    """The members of a mapping, by those keys where there are any: which was filled in first may change."""
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
            raise CodecError("an answer's integer has to fit in 64 bits")
    return torch.tensor(leaf, device=target.device)


def _from_numpy(array: Any) -> torch.Tensor:
    try:
        return torch.from_numpy(array)
    except TypeError as error:
        raise OutputFault(f"the answer holds numpy values of type {array.dtype}: return numbers") from error


def _check_dtype(tensor: torch.Tensor) -> None:
    if tensor.is_nested:
        raise OutputFault("nested tensors do not cross; return one padded tensor, or a list of plain ones")
    if tensor.dtype not in CROSSING:
        raise CodecError(f"{tensor.dtype} tensors do not cross; dequantize or convert them")
