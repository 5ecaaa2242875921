"""Reads a card's Xid errors through NVML's events while a job holds the card, without nvidia-smi.

The meanings, and whose fault an error is, come from NVIDIA's "Xid Errors" document. An application can cause the errors
in USER on a healthy card. The errors in CARD spoil the work of every process on it. The errors in NOTED say nothing
about the cause."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pynvml

from profiling.gpu.monitor import CardUnavailable, card_handle

USER = {
    13: "an exception on the graphics engine: out-of-range address or misaligned access",
    31: "a memory page fault: an illegal address",
    32: "an invalid or corrupted push buffer stream",
    43: "the GPU stopped processing: an application's error, the GPU goes on",
    45: "an application's channels were torn down after an earlier error, or it was killed",
    69: "an exception of the graphics engine class",
    109: "a context switch took too long",
    137: "an NVLink fault of an application: an illegal address on a peer",
}
CARD = {
    48: "an uncorrectable memory error (double bit)",
    61: "an internal breakpoint or warning of its microcontroller",
    62: "an internal halt of its microcontroller",
    64: "remapping a memory row or retiring a page failed",
    74: "an NVLink error",
    79: "the GPU has fallen off the bus",
    94: "an uncorrectable memory error that was contained to an application",
    95: "an uncorrectable memory error that was not contained",
    119: "its system processor (GSP) does not answer",
    120: "an error of its system processor (GSP)",
    140: "an unrecovered memory error",
    143: "an error while it was being initialised",
    154: "it needs a reset",
}
NOTED = {
    46: "the GPU stopped processing, for a reason that the number does not tell",
    63: "a memory row or page was remapped or retired, after an error that was corrected",
    92: "many corrected memory errors",
}
UNKNOWN = "not known to this service; see NVIDIA's Xid document"


@dataclass(frozen=True)
class CardError:
    """One report. `is_hardware_fault`: the card failed, whatever ran on it. Unknown numbers do not say so."""

    xid: int

    @property
    def is_hardware_fault(self) -> bool:
        return self.xid in CARD

    @property
    def meaning(self) -> str:
        return (USER | CARD | NOTED).get(self.xid, UNKNOWN)

    def summary(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"xid": self.xid, "meaning": self.meaning, "is_hardware_fault": self.is_hardware_fault}


def summary(errors: list[CardError] | CardUnavailable) -> list[dict[str, Any]] | dict[str, str]:
    """The reported errors, or why they are unknown; JSON-ready."""
    return {"unavailable": errors.reason} if isinstance(errors, CardUnavailable) else [one.summary() for one in errors]


class CardErrors:
    """The errors of one card since the last call of `new`; `card` is as for CardMonitor.

    NVML does not survive a fork, so that each process opens it on its first call. Nothing here raises.
    """

    def __init__(self, card: str | int | None) -> None:
        self._card = card
        self._pid: int | None = None
        self._events: Any = None

    def discard_pending(self) -> None:
        """Drops the reports so far: an earlier job caused them."""
        self.take_new()

    def take_new(self, within_s: float = 0.0) -> list[CardError] | CardUnavailable:
        """The errors reported since the last call; waits up to `within_s` for the first."""
        if self._card is None:
            return CardUnavailable("there is no GPU: this worker judges on the CPU")
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._events = _listen(self._card)
        if isinstance(self._events, CardUnavailable):
            return self._events
        errors: list[CardError] = []
        wait_ms = round(within_s * 1000)
        while True:
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, wait_ms)
            except pynvml.NVMLError_Timeout:
                return errors
            except pynvml.NVMLError as error:
                return errors or CardUnavailable(f"the driver no longer reports the GPU's errors ({error})")
            errors.append(CardError(int(event.eventData)))
            wait_ms = 0


def _listen(card: str | int) -> Any:
    """NVML's event set for the card's errors; CardUnavailable if the driver has none."""
    try:
        pynvml.nvmlInit()
        events = pynvml.nvmlEventSetCreate()
        pynvml.nvmlDeviceRegisterEvents(card_handle(card), pynvml.nvmlEventTypeXidCriticalError, events)
    except (pynvml.NVMLError, OSError) as error:
        return CardUnavailable(f"the driver does not tell the card's errors ({error})")
    return events
