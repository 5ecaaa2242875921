"""Has `torch.cuda.device` around a launch select nothing where the tensors lie on the host."""

from __future__ import annotations

from typing import Any

import torch

_NO_DEVICE = -1
_original_init = torch.cuda.device.__init__


def install() -> None:
    """Patches this process and its forks. Sources write `with torch.cuda.device(x.device.index)`: None on a CPU."""
    torch.cuda.device.__init__ = _select  # type: ignore[method-assign,assignment]


def _select(guard: Any, device: Any) -> None:
    is_host = device is None or (isinstance(device, torch.device) and device.type == "cpu")
    _original_init(guard, _NO_DEVICE if is_host else device)
