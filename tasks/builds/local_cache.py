"""Finished builds by what went into them, shared by every process of a node and kept over restarts.

Only trusted processes write here, and only what a dead builder left in its own folder, here or on another node: plain
files, of a bounded size, whose digest is the one taken when the builder had ended. A job gets a copy. So a submission
decides about its own builds, and nobody gets those who sends another source.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from domain.fault import JobCancelled
from sandbox.isolation import uid
from sandbox.isolation.scratch_dir import remove
from tasks.builds import archive as build_archive
from tasks.builds.archive import UNREADABLE, Finished, Note
from tasks.builds.folder_digest import digest
from tasks.builds.relocate import relocate

POLL_S = 0.02
FAULT_S = 600
"""How long it is remembered that a source does not compile: a group of the same wrong submissions, not a day's."""

_OLD_DRAFT_S = 3600.0

log = logging.getLogger(__name__)


class BuildCache:
    """Below `folder`, up to `limit` bytes; what was used longest ago goes first."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._entries = folder / "entries"
        self._entries.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._line = folder / "line"
        self._limit = limit

    @contextmanager
    def alone(self, key: str, cancelled: Callable[[], bool], patience: float) -> Iterator[bool]:
        """Inside, nobody else of this node builds the same; False where that took longer than `patience` seconds.

        A lock of the kernel's on one byte of a file, which ends with its holder. Raises JobCancelled.
        """
        line = os.open(self._line, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            until = time.monotonic() + patience
            while not (held := _locked(line, int(key[:15], 16))) and time.monotonic() < until:
                if cancelled():
                    raise JobCancelled("cancelled while another job built the same source")
                time.sleep(POLL_S)
            yield held
        finally:
            os.close(line)

    def restore(self, key: str, folder: Path) -> Finished | None:
        """The build of that key, its files copied into the empty `folder`; None where there is none."""
        path = self.archive(key)
        try:
            with build_archive.opened(path) as archive:
                note = build_archive.read_note(archive, key)
                if note.finished.fault is not None and not abs(time.time() - note.finished.at) <= FAULT_S:
                    return None
                build_archive.unpack(archive, folder)
            if digest(folder).hex() != note.digest:
                raise ValueError("its files are not those that were written")
            relocate(folder, note.folder)
            uid.give(folder)
            with suppress(FileNotFoundError):  # Another process may have found since that it is the oldest.
                os.utime(path)
            return note.finished
        except FileNotFoundError:
            return None
        except OSError as error:  # Of the job's disk, which may be full: no word about the build.
            log.warning("the build %s cannot be copied (%s): it is made anew", key, error)
        except UNREADABLE as error:
            log.warning("the build %s cannot be used (%s): it is made anew", key, error)
            path.unlink(missing_ok=True)
        _clear(folder)
        return None

    def store(self, key: str, folder: Path, sealed: bytes, finished: Finished) -> bool:
        """Keeps a copy of what the dead builder left in `folder`; False where that is not kept.

        `sealed` is the folder's digest as it was at the builder's end: a copy that has another is none.
        """
        note = Note(key, finished, sealed.hex(), str(folder))
        try:
            paths = build_archive.plain(folder)
            if paths is None:
                return False
            return self._keep(key, partial(build_archive.write, note=note, folder=folder, paths=paths), sealed.hex())
        except UNREADABLE as error:
            log.warning("the build %s is not kept: %s", key, error)
            return False

    def receive(self, key: str, write: Callable[[BinaryIO], None]) -> None:
        """Keeps an archive that another node has made: `write` writes it. Raises one of UNREADABLE for what is none.

        OSError where there is no room for it here, which says nothing about it.
        """
        if not self._keep(key, write):
            raise ValueError("its files are not those that were written")

    def archive(self, key: str) -> Path:
        """Where the build of that key is, if it is kept: a file that is replaced and removed, and never changed."""
        return self._entries / f"{key}.tar"

    def _keep(self, key: str, write: Callable[[BinaryIO], None], sealed: str | None = None) -> bool:
        """Whether the archive has the files that its note, or `sealed`, says: else it is not kept."""
        descriptor, name = tempfile.mkstemp(prefix=".draft-", dir=self._entries)
        draft = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                write(file)
            if draft.stat().st_size > self._limit:  # All others would go for it, and then it too.
                raise OSError(errno.EFBIG, "it is larger than all builds together may be (BUILD_CACHE_MIB)")
            if not _holds(draft, key, sealed, self._entries):
                return False
            draft.chmod(0o400)
            draft.rename(self.archive(key))
        finally:
            draft.unlink(missing_ok=True)
        self._evict()
        return True

    def _evict(self) -> None:
        found = []
        for entry in os.scandir(self._entries):
            with suppress(FileNotFoundError):
                found.append((entry.stat().st_mtime, entry.stat().st_size, Path(entry.path)))
        total, now = 0, time.time()
        for used, size, path in sorted(found, reverse=True):
            draft = path.suffix != ".tar"
            total += 0 if draft else size
            if (draft and now - used > _OLD_DRAFT_S) or (not draft and total > self._limit):
                remove(path)  # A draft, or the folder of a check, of who was killed meanwhile.


def key_of(parts: list[Any]) -> str:
    """The name of a build: a digest of everything that its result depends on (JSON-ready)."""
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=20).hexdigest()


def _locked(file: int, byte: int) -> bool:
    """Whether this open file now has that byte's lock."""
    request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, request)
    except BlockingIOError:
        return False
    return True


def _holds(draft: Path, key: str, sealed: str | None, beside: Path) -> bool:
    """Whether the archive has the files that were sealed: what was copied may have been changed meanwhile."""
    with tempfile.TemporaryDirectory(prefix=".check-", dir=beside) as name, build_archive.opened(draft) as archive:
        note = build_archive.read_note(archive, key)
        build_archive.unpack(archive, Path(name))
        return digest(Path(name)).hex() == (sealed or note.digest)


def _clear(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
