"""The device that this worker judges on, found through the driver alone, so that a process may still fork for CUDA."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pynvml

from domain.settings import settings

GPU_TYPES = ("gh200", "gb300", "gb200", "b300", "b200", "h200", "h100", "a100", "l40s", "a10")
CPU_ONLY = "cpu"


class DeviceError(RuntimeError):
    """The GPU that the settings name is not there."""


@dataclass(frozen=True)
class Device:
    """One device. `name` is the lease's: a GPU's UUID, or "cpu". `gpu_type` is the original service's short name."""

    name: str
    gpu_index: int | None = None
    gpu_name: str | None = None
    gpu_type: str | None = None
    driver: str | None = None
    capability: tuple[int, int] | None = None

    @property
    def arch(self) -> str:
        """What kernels are built for: such as "sm_90", or "cpu"."""
        return CPU_ONLY if self.capability is None else "sm_{}{}".format(*self.capability)

    @property
    def is_gpu(self) -> bool:
        return self.gpu_index is not None

    @property
    def model(self) -> str:
        """What a request's `gpu` names: the short name, "cpu", or the card's own in small letters and dashes.

        A slice of a card (MIG) is no card: it is named in full.
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
    wanted = settings().visible_devices if settings().visible_devices is not None else settings().gpu_device
    if wanted is not None and wanted.strip().lower() in ("", CPU_ONLY, "-1", "none", "void"):
        return CPU
    first = wanted.split(",")[0].strip() if wanted else None
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


def _handle(wanted: str | None) -> Any:
    if wanted is None or wanted.isdigit():
        return pynvml.nvmlDeviceGetHandleByIndex(int(wanted or 0))
    every = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    for handle in every:  # CUDA takes the beginning of a UUID for the whole, NVML does not.
        if _text(pynvml.nvmlDeviceGetUUID(handle)).startswith(wanted):
            return handle
    return pynvml.nvmlDeviceGetHandleByUUID(wanted)


def type_of(gpu_name: str) -> str | None:
    """The short name, if the card has one: a word of its own name, as an RTX A1000 is no A100."""
    words = re.findall(r"[a-z0-9]+", gpu_name.lower())
    return next((known for known in GPU_TYPES if known in words), None)


def _describe(handle: Any) -> Device:
    gpu_name = _text(pynvml.nvmlDeviceGetName(handle))
    card = handle
    with suppress(pynvml.NVMLError):  # A slice of a card (MIG) has a UUID of its own, but the card's index.
        card = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    return Device(
        name=_text(pynvml.nvmlDeviceGetUUID(handle)),
        gpu_index=pynvml.nvmlDeviceGetIndex(card),
        gpu_name=gpu_name,
        gpu_type=type_of(gpu_name),
        driver=_text(pynvml.nvmlSystemGetDriverVersion()),
        capability=pynvml.nvmlDeviceGetCudaComputeCapability(card),
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
