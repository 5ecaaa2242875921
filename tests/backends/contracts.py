"""Arguments of a contract in their wire form, and the values that a runner would be given for them."""

from __future__ import annotations

from typing import Any

import torch

from domain.contract import IOContract


def tensor(name: str, *shape: int, dtype: str = "float32", role: str = "input") -> dict[str, Any]:
    return {"name": name, "type": "tensor", "role": role, "tensor_spec": {"shape": list(shape), "dtype": dtype}}


def constant(name: str, *shape: int, dtype: str = "float32") -> dict[str, Any]:
    return tensor(name, *shape, dtype=dtype) | {"is_constant": True}


def scalar(name: str, value: float, *, meta: bool = False) -> dict[str, Any]:
    return {"name": name, "type": type(value).__name__, "value": value, "is_meta": meta}


def contract(*args: dict[str, Any], **launch: Any) -> dict[str, Any]:
    return {"args": list(args), "launch": launch}


def values(io: IOContract | None, device: str = "cpu") -> list[Any]:
    """Random inputs, outputs of zeros, scalars as they are."""
    assert io is not None
    made: list[Any] = []
    for argument in io.args:
        if argument.tensor_spec is None:
            made.append(argument.value)
            continue
        dtype = getattr(torch, argument.tensor_spec.dtype)
        fill = torch.zeros if argument.role == "output" else torch.randn
        made.append(fill(argument.tensor_spec.shape, device=device).to(dtype))
    return made
