"""How many pieces of work a call gives the device: kernels, copies and fills, counted by CUPTI as the driver is asked.

A subscriber costs 12 ms once, and nothing after it is gone (docs/measurements.md). Advisory: it is counted in the
submission's own process, and only says how far a time may be off, as each launch adds to that, and whether its streams
need a context of more than one queue.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from backends.base import Target

DRIVER_API = 1
"""CUPTI_CB_DOMAIN_DRIVER_API."""
ENTER = 0
"""CUPTI_API_ENTER."""
WORK = (b"cuLaunch", b"cuMemcpy", b"cuMemset", b"cuGraphLaunch")
JOINS = (b"cuStreamWaitEvent", b"cuGraphLaunch")
"""What only streams that wait for each other call for, and graphs, whose branches may run beside each other."""
STREAM_OF = {b"cuLaunchKernelEx": (True, 32), b"cuLaunchKernel": (False, 40), b"cuLaunchCooperativeKernel": (False, 40)}
"""Where a launch's stream lies (cuda.h, generated_cuda_meta.h): behind the first parameter, or beside it."""
LEGACY_STREAM = 1
"""CU_STREAM_LEGACY, which is also called 0."""


class _CallbackData(ctypes.Structure):
    """The head of CUpti_CallbackData (cupti_callbacks.h)."""

    _fields_ = (
        ("callback_site", ctypes.c_int),
        ("function_name", ctypes.c_char_p),
        ("function_parameters", ctypes.c_void_p),
    )


_KEPT: list[object] = []
"""For as long as the process lives: a thread of the submission's may be on its way into one that is no longer asked."""

_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(_CallbackData))


@dataclass
class LaunchCount:
    """`launches` is None where there is no CUPTI, or somebody else is its one subscriber; no stream is known then."""

    launches: int | None = None
    streams: set[int] = field(default_factory=set)
    joined: bool = False

    @property
    def several_streams(self) -> bool:
        """Whether some of it may run beside the rest."""
        return self.joined or len(self.streams) > 1

    def note(self, name: bytes, parameters: int | None) -> None:
        """A call of the driver."""
        if name.startswith(WORK):
            self.launches = (self.launches or 0) + 1
        self.joined |= name.startswith(JOINS)
        behind, offset = STREAM_OF.get(name.removesuffix(b"_ptsz"), (False, 0))
        if parameters and offset:
            start = ctypes.c_uint64.from_address(parameters).value if behind else parameters
            self.streams.add(ctypes.c_uint64.from_address(start + offset).value or LEGACY_STREAM)


@contextmanager
def counted_launches(target: Target) -> Iterator[LaunchCount]:
    """Counts what the block launches. Needs a context; nothing is counted on the CPU."""
    count = LaunchCount()
    library = _library() if target.is_cuda else None

    def entered(_: int, __: int, ___: int, data: ctypes._Pointer[_CallbackData]) -> None:
        if data.contents.callback_site == ENTER:
            count.note(data.contents.function_name, data.contents.function_parameters)

    note = _Callback(entered)
    _KEPT.append(note)
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
