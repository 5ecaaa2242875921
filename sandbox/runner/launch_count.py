"""Counts the operations that a call sends to the device (kernels, copies, fills), by CUPTI's callbacks of the driver.

Subscribing takes 12 ms once, and costs nothing afterwards (docs/measurements.md). The count is advisory, because the
submission's own process makes it. It says how much launches add to a time, and whether a context needs several queues.
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
"""Driver calls of streams that wait for each other, and of graphs, whose branches may run concurrently."""
STREAM_OF = {b"cuLaunchKernelEx": (True, 32), b"cuLaunchKernel": (False, 40), b"cuLaunchCooperativeKernel": (False, 40)}
"""Whether a launch's stream is behind its first parameter, and its offset (cuda.h, generated_cuda_meta.h)."""
LEGACY_STREAM = 1
"""CU_STREAM_LEGACY, which is also called 0."""


class _CallbackData(ctypes.Structure):
    """The head of CUpti_CallbackData (cupti_callbacks.h)."""

    _fields_ = (
        ("callback_site", ctypes.c_int),
        ("function_name", ctypes.c_char_p),
        ("function_parameters", ctypes.c_void_p),
    )


_CALLBACKS: list[object] = []
"""Never freed: a thread of the submission may still be entering a callback that was unsubscribed."""

_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(_CallbackData))


@dataclass
class LaunchCount:
    """`launches` is None without CUPTI or if CUPTI has another subscriber; no streams are known then."""

    launches: int | None = None
    streams: set[int] = field(default_factory=set)
    joined: bool = False

    @property
    def several_streams(self) -> bool:
        """Whether parts of the work may run concurrently."""
        return self.joined or len(self.streams) > 1

    def note(self, name: bytes, parameters: int | None) -> None:
        """Records a call of the driver."""
        if name.startswith(WORK):
            self.launches = (self.launches or 0) + 1
        self.joined |= name.startswith(JOINS)
        indirect, offset = STREAM_OF.get(name.removesuffix(b"_ptsz"), (False, 0))
        if parameters and offset:
            start = ctypes.c_uint64.from_address(parameters).value if indirect else parameters
            self.streams.add(ctypes.c_uint64.from_address(start + offset).value or LEGACY_STREAM)


@contextmanager
def count_launches(target: Target) -> Iterator[LaunchCount]:
    """Counts what the block launches. Needs a CUDA context; counts nothing on the CPU."""
    count = LaunchCount()
    library = _library() if target.is_cuda else None

    def entered(_: int, __: int, ___: int, data: ctypes._Pointer[_CallbackData]) -> None:
        if data.contents.callback_site == ENTER:
            count.note(data.contents.function_name, data.contents.function_parameters)

    note = _Callback(entered)
    _CALLBACKS.append(note)
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
    """The CUPTI library that torch has loaded, whatever its version."""
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if "/libcupti.so" in line}
    return ctypes.CDLL(min(paths)) if paths else None
