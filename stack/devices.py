"""The GPUs of this machine, and which of them the stack may use."""

from __future__ import annotations

from dataclasses import dataclass

import pynvml

CPU_ONLY = "cpu"


class DeviceError(ValueError):
    """The GPUs that were asked for are not there."""


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver knows it; `uuid` names it whatever the order of devices is."""

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
            Gpu(index, _text(pynvml.nvmlDeviceGetUUID(handle)), _text(pynvml.nvmlDeviceGetName(handle)))
            for index, handle in enumerate(handles)
        ]
    finally:
        pynvml.nvmlShutdown()


def chosen(gpus: list[Gpu], wanted: str | None, visible: str | None = None) -> list[Gpu]:
    """The GPUs that `wanted` names: indexes or UUIDs, comma-separated; all of them for None, none for "cpu".

    `visible` is CUDA's own restriction (CUDA_VISIBLE_DEVICES), which holds where nothing is wanted. Raises DeviceError
    naming what is not there, rather than running on something else.
    """
    if not wanted and gpus and visible is not None:
        wanted = visible or CPU_ONLY
    if not wanted:
        return gpus
    if wanted.lower() == CPU_ONLY:
        return []
    return list(dict.fromkeys(_named(gpus, name.strip()) for name in wanted.split(",")))


def _named(gpus: list[Gpu], name: str) -> Gpu:
    for gpu in gpus:
        if name == str(gpu.index) or (name.startswith("GPU-") and gpu.uuid.startswith(name)):
            return gpu
    there = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in gpus) or f"none; leave GPU_DEVICE unset or say {CPU_ONLY}"
    raise DeviceError(f"{name!r} is no GPU of this machine. Its GPUs: {there}")


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
