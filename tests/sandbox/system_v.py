"""A segment, a queue and a semaphore of System V, as any process of the same user may have them."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
_OWN, _PRIVATE, _NO_WAIT, _REMOVE, _GET_VALUE = 0o600, 0, 0o4000, 0, 12


class SystemV:
    """`ids` names them to the attacks. The queue holds one message."""

    def __init__(self) -> None:
        self._segment = _checked(_libc.shmget(_PRIVATE, 4096, _OWN))
        self._queue = _checked(_libc.msgget(_PRIVATE, _OWN))
        self._semaphore = _checked(_libc.semget(_PRIVATE, 1, _OWN))
        _checked(_libc.msgsnd(self._queue, _message(), 8, _NO_WAIT))
        self.ids = {"SEGMENT": self._segment, "QUEUE": self._queue, "SEMAPHORE": self._semaphore}

    def unharmed(self) -> bool:
        """Nothing was removed, taken, added or raised."""
        return (
            _libc.shmctl(self._segment, 2, ctypes.create_string_buffer(256)) == 0
            and _libc.semctl(self._semaphore, 0, _GET_VALUE) == 0
            and _libc.msgrcv(self._queue, _message(), 8, 0, _NO_WAIT) == 8
            and _libc.msgrcv(self._queue, _message(), 8, 0, _NO_WAIT) < 0
        )

    def close(self) -> None:
        _libc.shmctl(self._segment, _REMOVE, None)
        _libc.msgctl(self._queue, _REMOVE, None)
        _libc.semctl(self._semaphore, 0, _REMOVE)


def _message() -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(b"\1" + bytes(15), 16)


def _checked(answer: int) -> int:
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer
