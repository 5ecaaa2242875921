"""How many pieces of work a call gives the device: kernels, copies and fills, counted by CUPTI as the driver is asked.

A subscriber costs 12 ms once, and nothing after it is gone (docs/measurements.md). Advisory: it is counted in the
submission's own process, and only says how far a time may be off, as each launch adds to that.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from backends.backend import Target

DRIVER_API = 1
"""CUPTI_CB_DOMAIN_DRIVER_API."""
ENTER = 0
"""CUPTI_API_ENTER."""
WORK = (b"cuLaunch", b"cuMemcpy", b"cuMemset", b"cuGraphLaunch")


class _CallbackData(ctypes.Structure):
    """The head of CUpti_CallbackData (cupti_callbacks.h)."""

    _fields_ = (("callback_site", ctypes.c_int), ("function_name", ctypes.c_char_p))


_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(_CallbackData))


@dataclass
class LaunchCount:
    """`launches` is None where there is no CUPTI, or somebody else is its one subscriber."""

    launches: int | None = None


@contextmanager
def counted_launches(target: Target) -> Iterator[LaunchCount]:
    """Counts what the block launches. Needs a context; nothing is counted on the CPU."""
    count = LaunchCount()
    library = _library() if target.is_cuda else None

    def entered(_: int, __: int, ___: int, data: ctypes._Pointer[_CallbackData]) -> None:
        if data.contents.callback_site == ENTER and data.contents.function_name.startswith(WORK):
            count.launches = (count.launches or 0) + 1

    note = _Callback(entered)  # Kept by this name for as long as CUPTI may call it.
    subscriber = ctypes.c_void_p()
    if library is None or library.cuptiSubscribe(ctypes.byref(subscriber), note, None) != 0:
        yield count
        return
    try:
        if library.cuptiEnableDomain(1, subscriber, DRIVER_API) == 0:
            count.launches = 0
        yield count
    finally:
        library.cuptiUnsubscribe(subscriber)


def _library() -> ctypes.CDLL | None:
    """The one that torch has loaded, of whatever version."""
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if "/libcupti.so" in line}
    return ctypes.CDLL(min(paths)) if paths else None
