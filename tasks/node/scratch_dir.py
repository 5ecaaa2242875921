"""The scratch folder of a pool child: its owner locks it, and the next owner removes those of dead owners."""

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

PREFIX, SETTING = "worker-", "STATE_DIR"


class ScratchDir:
    """A new folder below `parent`, until `close`; creating it first removes the folders of dead owners.

    The kernel's lock on the folder ends with its holder, in whatever way that ends. There is no lock file that a
    submission could remove. Children that are forked without exec would share the lock.
    """

    def __init__(self, parent: Path) -> None:
        """Raises UnsafeFolder if another user can change `parent`."""
        with suppress(FileExistsError):  # `opened_private` then checks what exists.
            parent.mkdir(parents=True, mode=0o700)
        # Locking the parent: a folder that is created but not locked yet must not count as dead.
        with _locked(parent):
            for dead_folder in parent.glob(f"{PREFIX}*"):
                _remove_if_dead(dead_folder)
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            for folder in (parent, self.path):
                allow_traversal(folder)
            self._lock = opened_private(self.path, SETTING)
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        remove(self.path)
        os.close(self._lock)


def _remove_if_dead(folder: Path) -> None:
    try:
        lock = opened_private(folder, SETTING)
    except (OSError, UnsafeFolder):
        return  # Its owner has removed it, or it is no folder of this service.
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _kill_submissions_of(folder)
        remove(folder)
    except BlockingIOError:
        return
    finally:
        os.close(lock)


def _kill_submissions_of(folder: Path) -> None:
    """Kill the processes of a dead owner's submissions: each submission has its own user, who owns its folder."""
    if os.geteuid() != 0:
        return
    private = [*_entries(folder, "standby-"), *chain.from_iterable(_entries(job) for job in _entries(folder, "job-"))]
    for one in private:
        with suppress(FileNotFoundError):
            user = one.lstat().st_uid
            if may_be_submissions(user):
                kill_user(user)


def _entries(parent: Path, prefix: str = "") -> list[Path]:
    """The entries of a folder, without symbolic links."""
    try:
        with os.scandir(parent) as entries:
            names = [entry.name for entry in entries if not entry.is_symlink()]
    except OSError:
        return []
    return [parent / name for name in names if name.startswith(prefix)]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = opened_private(folder, SETTING)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
