"""Detects the target of builds and runs: device and compute capability, as this process's torch sees them."""

from __future__ import annotations

import torch

from backends.base import Target
from domain.fault import InfrastructureFault


def detect_target() -> Target:
    """The first GPU that this process may see, else the CPU. Raises InfrastructureFault if the GPU does not start."""
    if not torch.cuda.is_available():
        return Target("cpu", None)
    try:
        major, minor = torch.cuda.get_device_capability(0)
    except RuntimeError as error:
        raise InfrastructureFault(f"the GPU does not start: {error}") from error
    return Target("cuda:0", f"sm_{major}{minor}")
