"""The contract's element types as torch's, both ways."""

from __future__ import annotations

import torch

from domain.dtype import CODES, ITEM_BYTES

TORCH_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ITEM_BYTES}
WIRE_NAMES: dict[torch.dtype, str] = {dtype: name for name, dtype in TORCH_DTYPES.items()}
CODE_DTYPES = frozenset(TORCH_DTYPES[name] for name in CODES)


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a wire name; ValueError listing the known names."""
    try:
        return TORCH_DTYPES[name]
    except KeyError:
        raise ValueError(f"unknown dtype {name!r}; known are {', '.join(TORCH_DTYPES)}") from None


def wire_name(dtype: torch.dtype) -> str:
    """The wire name of a torch dtype; ValueError for the dtypes that no contract can name."""
    try:
        return WIRE_NAMES[dtype]
    except KeyError:
        raise ValueError(f"{dtype} has no name in a contract; convert to one of {', '.join(TORCH_DTYPES)}") from None


def is_computed(tensor: torch.Tensor) -> bool:
    """Whether torch computes with its elements as real floating-point numbers."""
    return tensor.is_floating_point() and tensor.dtype not in CODE_DTYPES
