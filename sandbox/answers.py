"""What a call gave, as tensors: flattened, checked for where they lie, delivered into the referee's slots."""

from __future__ import annotations

from typing import Any

import torch

from backends.backend import Target
from domain import value as values
from domain.fault import KernelFault
from domain.result import Status
from domain.value import TensorRef
from sandbox.arena import describe


def tensors_of(result: Any, target: Target) -> list[torch.Tensor]:
    """The tensors of a nested answer, depth first, numbers as 0-d tensors; what is neither carries no answer.

    Raises KernelFault (WRONG_RESULT) for a tensor on another device.
    """
    found = [_tensor(leaf, target) for leaf in _flattened(result)]
    for index, tensor in enumerate(found):
        if tensor.device.type != torch.device(target.device).type:
            raise KernelFault(Status.WRONG_RESULT, f"output {index} is on {tensor.device}, expected on {target.device}")
    return found


def deliver(answers: list[list[torch.Tensor]], slots: list[list[torch.Tensor]]) -> None:
    """Copies every call's answer into its slots, together: one by one, copies of small tensors cost as much as calls.

    Raises KernelFault when an answer does not look like the first one did.
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
    if targets:
        torch._foreach_copy_(targets, sources)


def portable(value: Any, target: Target) -> tuple[Any, list[torch.Tensor]]:
    """A value's wire form, its tensors with sizes but no places yet, and those tensors, on the target's device."""
    kept: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> TensorRef:
        if tensor.layout != torch.strided:
            raise KernelFault(Status.UNSUPPORTED, f"{tensor.layout} tensors do not cross; only strided ones do")
        kept.append(tensor.detach().to(target.device).resolve_conj().resolve_neg())
        return describe(kept[-1])

    return values.encode(values.replace(value, torch.Tensor, keep)), kept


def _changed(first: str, now: str) -> KernelFault:
    return KernelFault(
        Status.UNSUPPORTED,
        f"the answer changed from {first} to {now} between calls; outputs whose shape depends on the data cannot be "
        "evaluated: return a fixed shape",
    )


def _flattened(result: Any) -> list[Any]:
    match result:
        case tuple() | list():
            return [leaf for item in result for leaf in _flattened(item)]
        case dict():
            return [leaf for item in result.values() for leaf in _flattened(item)]
        case torch.Tensor() | bool() | int() | float():
            return [result]
    return []


def _tensor(leaf: Any, target: Target) -> torch.Tensor:
    return leaf.detach() if isinstance(leaf, torch.Tensor) else torch.tensor(leaf, device=target.device)
