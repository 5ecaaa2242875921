"""A pool child's folder for files: its owner locks it, and what a killed owner left goes with the next one."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sandbox.census import end_all_of
from sandbox.identity import let_pass
from sandbox.scratch import remove

PREFIX = "bench-"


class BenchFolder:
    """A new folder below `parent`, there until `close`; on the way in, those of dead owners are removed.

    The lock is the kernel's, so that it ends with its holder however that ends. It lies on the folder itself: there is
    no file that a submission could remove. Processes that are forked without exec would share it.
    """

    def __init__(self, parent: Path) -> None:
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Nobody looks for the dead between the making of a folder and its locking.
        with _held(parent):
            for left in parent.glob(f"{PREFIX}*"):
                _remove_if_dead(left)
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            for folder in (parent, self.path):
                let_pass(folder)
            self._lock = _opened(self.path)
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Removes the folder and all that is in it."""
        remove(self.path)
        os.close(self._lock)


def _remove_if_dead(folder: Path) -> None:
    try:
        lock = _opened(folder)
    except OSError:
        return  # Its owner has removed it meanwhile, or it is no folder.
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _end_those_who_work_in(folder)
        remove(folder)
    except BlockingIOError:
        return
    finally:
        os.close(lock)


def _end_those_who_work_in(folder: Path) -> None:
    """What a dead owner's submissions had started: each has a user of its own, whose its folder is."""
    for private in (*folder.glob("job-*/*"), *folder.glob("cell-*")):
        with suppress(FileNotFoundError):
            user = private.lstat().st_uid
            if os.geteuid() == 0 and user != 0:
                end_all_of(user)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    lock = _opened(folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
