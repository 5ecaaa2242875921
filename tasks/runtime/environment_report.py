"""The machine, device and versions that a job ran on, for its report."""

from __future__ import annotations

import contextlib
import platform
import socket
from functools import cache
from typing import Any

import torch

from backends.base import Target
from tasks.node.device_info import detect


@cache
def environment(target: Target) -> dict[str, Any]:
    """Host, device and versions; JSON-ready."""
    host = socket.gethostname()
    address = None
    with contextlib.suppress(OSError):
        address = socket.gethostbyname(host)
    report: dict[str, Any] = {
        "host": host,
        "address": address,
        "device": target.device,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gpu_id": None,
        "gpu_type": None,
        "gpu_name": None,
        "gpu_model": detect().model,
        "cuda_version": torch.version.cuda,
    }
    with contextlib.suppress(ImportError):
        import triton

        report["triton"] = triton.__version__
    if target.is_cuda:
        properties, device = torch.cuda.get_device_properties(target.device), detect()
        report |= {
            "gpu_id": device.gpu_index,
            "gpu_name": properties.name,
            "gpu_type": device.gpu_type,
            "gpu_memory_bytes": properties.total_memory,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "driver": device.driver,
        }
    return report
