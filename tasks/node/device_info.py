"""Finds this worker's device through the driver alone, so that the process may still fork children that use CUDA."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import pynvml

from domain.settings import settings

GPU_TYPES = ("gh200", "gb300", "gb200", "b300", "b200", "h200", "h100", "a100", "l40s", "a10")
CPU_ONLY = "cpu"


class DeviceError(RuntimeError):
    """The GPU that the settings name is not there."""


@dataclass(frozen=True)
class Device:
    """One device. `name` is a GPU's UUID, or "cpu"; leases use it. `gpu_type` is the original service's short name."""

    name: str
    gpu_index: int | None = None
    gpu_name: str | None = None
    gpu_type: str | None = None
    driver: str | None = None
    capability: tuple[int, int] | None = None

    @property
    def arch(self) -> str:
        """Architecture that kernels are built for, such as "sm_90", or "cpu"."""
        return CPU_ONLY if self.capability is None else "sm_{}{}".format(*self.capability)

    @property
    def is_gpu(self) -> bool:
        return self.gpu_index is not None

    @property
    def model(self) -> str:
        """Name for a request's `gpu`: the short name, "cpu", or the card's full name in lower case and dashes.

        A slice of a card (MIG) always has its full name, because it is not a whole card.
        """
        if self.gpu_name is None:
            return CPU_ONLY
        if self.gpu_type is not None and "mig" not in self.gpu_name.lower().split():
            return self.gpu_type
        return re.sub(r"[^a-z0-9]+", "-", self.gpu_name.lower().removeprefix("nvidia ")).strip("-")


CPU = Device("cpu")


def detect() -> Device:
    """The first GPU of CUDA_VISIBLE_DEVICES, else of GPU_DEVICE, else of the machine; the CPU where there is none.

    Raises DeviceError for a GPU that is named but not there.
    """
    requested = settings().visible_devices if settings().visible_devices is not None else settings().gpu_device
    if requested is not None and requested.strip().lower() in ("", CPU_ONLY, "-1", "none", "void"):
        return CPU
    first = requested.split(",")[0].strip() if requested else None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if first is not None:
            raise DeviceError(f"GPU {first!r} is asked for, but there is no NVIDIA driver ({error})") from error
        return CPU
    try:
        return _describe(_handle(first)) if first or pynvml.nvmlDeviceGetCount() else CPU
    except pynvml.NVMLError as error:
        raise DeviceError(f"GPU {first or 0!r} cannot be used ({error}); `nvidia-smi -L` lists them") from error
    finally:
        pynvml.nvmlShutdown()


@cache
def own_device() -> Device:
    """This process's device as `detect` first found it; processes that it forks inherit the answer."""
    return detect()


def _handle(requested: str | None) -> Any:
    if requested is None or requested.isdigit():
        return pynvml.nvmlDeviceGetHandleByIndex(int(requested or 0))
    every = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    for handle in every:  # CUDA accepts the beginning of a UUID, NVML does not.
        if pynvml.nvmlDeviceGetUUID(handle).startswith(requested):
            return handle
    return pynvml.nvmlDeviceGetHandleByUUID(requested)


def type_of(gpu_name: str) -> str | None:
    """The short name, if it is a word of the card's name: an RTX A1000 is no A100."""
    words = re.findall(r"[a-z0-9]+", gpu_name.lower())
    return next((gpu_type for gpu_type in GPU_TYPES if gpu_type in words), None)


def _describe(handle: Any) -> Device:
    gpu_name = pynvml.nvmlDeviceGetName(handle)
    card = handle
    with suppress(pynvml.NVMLError):  # A slice of a card (MIG) has its own UUID, but the card's index.
        card = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    return Device(
        name=pynvml.nvmlDeviceGetUUID(handle),
        gpu_index=pynvml.nvmlDeviceGetIndex(card),
        gpu_name=gpu_name,
        gpu_type=type_of(gpu_name),
        driver=pynvml.nvmlSystemGetDriverVersion(),
        capability=pynvml.nvmlDeviceGetCudaComputeCapability(card),
    )
