"""Samples a card through NVML: clocks, throttle reasons, temperature, power, and the processes on it.

It needs no torch. NVML does not survive a fork, so that each process opens it on its first sample.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pynvml

REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
"""The driver's bits for why the clocks are below their maximum, with the driver's names."""

COUNTERS = {
    pynvml.NVML_FI_DEV_PERF_POLICY_POWER: "sw_power_cap",
    pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL: "thermal_limit",
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN: "sw_thermal_slowdown",
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN: "hw_thermal_slowdown",
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN: "hw_power_brake_slowdown",
}
"""The driver's running totals of throttled time: they also show a slow-down that ended before the next sample."""

UUID_PREFIXES = ("GPU-", "MIG-")
HIDDEN_MEMORY = 2**64 - 1
"""NVML's value for an unknown memory use of a process."""


@dataclass(frozen=True)
class CardProcess:
    """A process with a context on the card. None: the driver does not say."""

    pid: int
    memory_bytes: int | None


@dataclass(frozen=True)
class CardSample:
    """One moment. None stands for a figure that this driver or card does not give.

    `reasons` are values of REASONS. `lowered_ns` (running totals by values of COUNTERS) and `processes` are only in
    thorough samples.
    """

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    max_memory_clock_mhz: int | None = None
    reasons: tuple[str, ...] | None = None
    lowered_ns: dict[str, int] = field(default_factory=dict)
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    memory_used_bytes: int | None = None
    ecc_uncorrected: int | None = None
    processes: tuple[CardProcess, ...] | None = None


@dataclass(frozen=True)
class CardUnavailable:
    """There is no card, or its driver does not answer; `reason` is for the reader of a result."""

    reason: str


class CardMonitor:
    """Samples one card: its UUID (torch's form without "GPU-" will do) or NVML index; None where there is no card.

    An index is NVML's, which CUDA_VISIBLE_DEVICES does not change: prefer the UUID. For a slice (MIG) the whole card is
    sampled, because a slice has no clock of its own. An error of NVML raises nothing here.
    """

    def __init__(self, card: str | int | None) -> None:
        self._card = card
        self._pid: int | None = None
        self._opened: _Open | CardUnavailable | None = None

    def sample(self, *, thorough: bool = False) -> CardSample | CardUnavailable:
        """The card now: some 20 µs on an H200, cheap enough for every window.

        A thorough one takes over a millisecond there: also the running totals, and who is on the card. For the
        beginning and the end of a job.
        """
        if self._card is None:
            return CardUnavailable("there is no GPU: this worker judges on the CPU")
        if self._opened is None or self._pid != os.getpid():
            self._pid = os.getpid()
            self._opened = _open(self._card)
        return self._opened if isinstance(self._opened, CardUnavailable) else self._opened.sample(thorough)


class _Open:
    """A card whose driver answers, with the figures that never change."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._max_sm = figure(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM)
        self._max_memory = figure(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_MEM)
        self._power_limit = watts(figure(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle))

    def sample(self, thorough: bool) -> CardSample | CardUnavailable:
        handle = self._handle
        temperature = figure(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
        clock = figure(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM)
        if temperature is None and clock is None:
            return CardUnavailable("the driver gives neither clock nor temperature of this card; see `nvidia-smi -q`")
        memory = figure(pynvml.nvmlDeviceGetMemoryInfo, handle)
        bits = figure(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        counter = (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        return CardSample(
            sm_clock_mhz=clock,
            memory_clock_mhz=figure(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
            max_sm_clock_mhz=self._max_sm,
            max_memory_clock_mhz=self._max_memory,
            reasons=None if bits is None else reason_names(bits),
            lowered_ns=_lowered(handle) if thorough else {},
            temperature_c=temperature,
            power_w=watts(figure(pynvml.nvmlDeviceGetPowerUsage, handle)),
            power_limit_w=self._power_limit,
            memory_used_bytes=None if memory is None else int(memory.used),
            ecc_uncorrected=figure(pynvml.nvmlDeviceGetTotalEccErrors, handle, *counter),
            processes=_processes(handle) if thorough else None,
        )


def reason_names(bits: int) -> tuple[str, ...]:
    """The driver's reason bits as names; bits of a newer driver by their number."""
    named = [name for bit, name in REASONS.items() if bits & bit]
    unnamed = [f"reason_{1 << index:#x}" for index in range(64) if bits & 1 << index and 1 << index not in REASONS]
    return (*named, *unnamed)


def figure(ask: Callable[..., Any], *arguments: Any) -> Any:
    """NVML's answer; None if it gives none."""
    try:
        return ask(*arguments)
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None


def watts(milliwatts: int | None) -> float | None:
    """NVML's power, converted to W."""
    return None if milliwatts is None else milliwatts / 1e3


def _open(card: str | int) -> _Open | CardUnavailable:
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, OSError) as error:
        return CardUnavailable(f"NVML does not start ({error}): is the NVIDIA driver's libnvidia-ml.so.1 here?")
    try:
        return _Open(card_handle(card))
    except pynvml.NVMLError as error:
        return CardUnavailable(f"NVML does not give card {card!r} ({error}); `nvidia-smi -L` lists those it knows")


def card_handle(card: str | int) -> Any:
    """NVML's handle of a card; for a slice (MIG) the handle of the whole card. Raises NVMLError."""
    if isinstance(card, int) or card.isdigit():
        return pynvml.nvmlDeviceGetHandleByIndex(int(card))
    handle = pynvml.nvmlDeviceGetHandleByUUID(card if card.startswith(UUID_PREFIXES) else UUID_PREFIXES[0] + card)
    whole = figure(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle)
    return handle if whole is None else whole


def _lowered(handle: Any) -> dict[str, int]:
    answers = figure(pynvml.nvmlDeviceGetFieldValues, handle, list(COUNTERS))
    if answers is None:
        return {}
    return {
        name: int(answer.value.ullVal)
        for name, answer in zip(COUNTERS.values(), answers, strict=True)
        if answer.nvmlReturn == pynvml.NVML_SUCCESS
    }


def _processes(handle: Any) -> tuple[CardProcess, ...] | None:
    """Compute and graphics processes, each once; None if the driver lists neither kind."""
    queries = (pynvml.nvmlDeviceGetComputeRunningProcesses, pynvml.nvmlDeviceGetGraphicsRunningProcesses)
    lists = [listed for listed in (figure(query, handle) for query in queries) if listed is not None]
    if not lists:
        return None
    memory = {int(process.pid): process.usedGpuMemory for listed in lists for process in listed}
    return tuple(
        CardProcess(pid, None if used in (None, HIDDEN_MEMORY) else int(used)) for pid, used in sorted(memory.items())
    )
