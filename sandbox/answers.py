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


def deliver(tensors: list[torch.Tensor], slots: list[torch.Tensor]) -> None:
    """Copies an answer into its slots; raises KernelFault when it no longer looks like the first one did."""
    if len(tensors) != len(slots):
        raise _changed(f"{len(slots)} outputs", f"{len(tensors)}")
    for tensor, slot in zip(tensors, slots, strict=True):
        if tensor.shape != slot.shape or tensor.dtype != slot.dtype:
            raise _changed(f"{slot.dtype} {tuple(slot.shape)}", f"{tensor.dtype} {tuple(tensor.shape)}")
        slot.copy_(tensor)


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
