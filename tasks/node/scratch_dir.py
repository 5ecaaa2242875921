"""A pool child's folder for files: its owner locks it, and what a killed owner left goes with the next one."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

from sandbox.isolation.process_tree import kill_user
from sandbox.isolation.scratch_dir import remove
from sandbox.isolation.uid import allow_traversal, may_be_submissions
from tasks.node.private_dir import UnsafeFolder, opened_private

PREFIX, SETTING = "bench-", "STATE_DIR"


class BenchFolder:
    """A new folder below `parent`, there until `close`; on the way in, those of dead owners are removed.

    The lock is the kernel's, so that it ends with its holder however that ends. It lies on the folder itself: there is
    no file that a submission could remove. Processes that are forked without exec would share it.
    """

    def __init__(self, parent: Path) -> None:
        """Raises UnsafeFolder where another user can change `parent`."""
        with suppress(FileExistsError):  # Whatever it is, it is looked at next.
            parent.mkdir(parents=True, mode=0o700)
        # Nobody looks for the dead between the making of a folder and its locking.
        with _held(parent):
            for left in parent.glob(f"{PREFIX}*"):
                _remove_if_dead(left)
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            for folder in (parent, self.path):
                allow_traversal(folder)
            self._lock = opened_private(self.path, SETTING)
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Removes the folder and all that is in it."""
        remove(self.path)
        os.close(self._lock)


def _remove_if_dead(folder: Path) -> None:
    try:
        lock = opened_private(folder, SETTING)
    except (OSError, UnsafeFolder):
        return  # Its owner has removed it meanwhile, or it is no folder of ours.
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _end_those_who_work_in(folder)
        remove(folder)
    except BlockingIOError:
        return
    finally:
        os.close(lock)


def _end_those_who_work_in(folder: Path) -> None:
    """Ends what a dead owner's submissions had started: each has a user of its own, who owns its folder."""
    if os.geteuid() != 0:
        return
    private = [*_entries(folder, "standby-"), *chain.from_iterable(_entries(job) for job in _entries(folder, "job-"))]
    for one in private:
        with suppress(FileNotFoundError):
            user = one.lstat().st_uid
            if may_be_submissions(user):
                kill_user(user)


def _entries(parent: Path, prefix: str = "") -> list[Path]:
    """The entries of a folder, without links."""
    try:
        with os.scandir(parent) as entries:
            names = [each.name for each in entries if not each.is_symlink()]
    except OSError:
        return []
    return [parent / name for name in names if name.startswith(prefix)]


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    lock = opened_private(folder, SETTING)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
