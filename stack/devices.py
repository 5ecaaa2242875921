"""The GPUs of this machine, and those that the stack may use."""

from __future__ import annotations

from dataclasses import dataclass

import pynvml

CPU_ONLY = "cpu"


class DeviceError(ValueError):
    """The requested GPUs do not exist."""


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver knows it; `uuid` identifies it in any order of devices."""

    index: int
    uuid: str
    name: str


def installed() -> list[Gpu]:
    """Every GPU that the driver reports; none where there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [
            Gpu(index, pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle))
            for index, handle in enumerate(handles)
        ]
    finally:
        pynvml.nvmlShutdown()


def chosen(gpus: list[Gpu], requested: str | None, visible: str | None = None) -> list[Gpu]:
    """The GPUs that `requested` names: indexes or UUIDs, comma-separated; None for all, "cpu" for none.

    `visible` is CUDA's own restriction (CUDA_VISIBLE_DEVICES); it applies if nothing is requested. Raises DeviceError
    for a missing GPU: the stack never falls back to another device.
    """
    if not requested and gpus and visible is not None:
        requested = visible or CPU_ONLY
    if not requested:
        return gpus
    if requested.lower() == CPU_ONLY:
        return []
    return list(dict.fromkeys(_named(gpus, name.strip()) for name in requested.split(",")))


def _named(gpus: list[Gpu], name: str) -> Gpu:
    for gpu in gpus:
        if name == str(gpu.index) or (name.startswith("GPU-") and gpu.uuid.startswith(name)):
            return gpu
    there = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in gpus) or f"none; leave GPU_DEVICE unset or say {CPU_ONLY}"
    raise DeviceError(f"{name!r} is no GPU of this machine. Its GPUs: {there}")
