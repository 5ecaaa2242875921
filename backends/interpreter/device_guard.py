"""Has `torch.cuda.device` select nothing, and describes a device, where the tensors of a launch lie on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import torch

_NO_DEVICE = -1
_original_init = torch.cuda.device.__init__
_original_properties = torch.cuda.get_device_properties


@dataclass(frozen=True)
class HostProperties:
    """`torch.cuda.get_device_properties` of the host: what a grid of persistent programs needs."""

    multi_processor_count: int = 4
    """Few, so that each program of a persistent grid has several tiles, as it has on a GPU."""
    warp_size: int = 32

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(f"No CUDA GPUs are available to say their {name}")


def install() -> None:
    """Patches this process and its forks. Sources write `with torch.cuda.device(x.device.index)`: None on a CPU.

    Nothing is patched where PyTorch sees a GPU: a call without an argument means that GPU.
    """
    if torch.cuda.is_available():
        return
    torch.cuda.device.__init__ = _select  # type: ignore[method-assign,assignment]
    torch.cuda.get_device_properties = _properties


def _is_host(device: Any) -> bool:
    return device is None or (isinstance(device, torch.device) and device.type == "cpu")


def _select(guard: Any, device: Any) -> None:
    _original_init(guard, _NO_DEVICE if _is_host(device) else device)


def _properties(device: Any = None) -> Any:
    return HostProperties() if _is_host(device) else _original_properties(device)
