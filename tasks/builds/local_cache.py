"""The build cache of a node: finished builds by a digest of their inputs, shared by its processes across restarts.

Only trusted processes write to it, and only what an ended builder left in its own folder, on this or another node:
plain files of bounded size whose digest was taken when the builder ended. A job gets a copy. A submission can therefore
only affect its own builds, because another source has another key.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZipFile

from domain.fault import JobCancelled
from sandbox.isolation import uid
from sandbox.isolation.scratch_dir import remove
from tasks.builds import archive as build_archive
from tasks.builds.archive import UNREADABLE, Finished, Note
from tasks.builds.folder_digest import digest
from tasks.builds.relocate import relocate
from tasks.node.byte_lock import try_lock

POLL_S = 0.02
FAULT_S = 600
"""Seconds for which a compile error is cached: enough for a group of equal wrong submissions, not for a day."""

_OLD_DRAFT_S = 3600.0
_OF_THE_ARCHIVE = (errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL)
"""The system's errors for two entries of one path, an entry within a file, a long name, and a place before the file."""

log = logging.getLogger(__name__)


class BuildCache:
    """The cache below `folder`, of at most `limit` bytes; evicts the least recently used builds."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._entries = folder / "entries"
        self._entries.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock_file = folder / "line"
        self._limit = limit

    @contextmanager
    def build_lock(self, key: str, cancelled: Callable[[], bool], patience: float) -> Iterator[bool]:
        """Hold the lock of one build on this node; yields False if that took longer than `patience` seconds.

        The lock is a kernel lock on one byte of a file, which ends with its holder. Raises JobCancelled.
        """
        descriptor = os.open(self._lock_file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            until = time.monotonic() + patience
            while not (is_locked := try_lock(descriptor, int(key[:15], 16))) and time.monotonic() < until:
                if cancelled():
                    raise JobCancelled("cancelled while another job built the same source")
                time.sleep(POLL_S)
            yield is_locked
        finally:
            os.close(descriptor)

    def restore(self, key: str, folder: Path) -> Finished | None:
        """Copy the build's files into the empty `folder` and return its outcome; None if it is not cached."""
        path = self.archive(key)
        try:
            with ZipFile(path) as archive:
                note = build_archive.read_note(archive, key)
                if note.finished.fault is not None and not abs(time.time() - note.finished.at) <= FAULT_S:
                    return None
                build_archive.unpack(archive, folder)
            if digest(folder).hex() != note.digest:
                raise ValueError("its files are not those that were written")
            relocate(folder, note.folder)
            uid.give(folder)
            with suppress(FileNotFoundError):  # Another process may have evicted it meanwhile.
                os.utime(path)
            return note.finished
        except FileNotFoundError:
            return None
        except OSError as error:  # An error of the job's disk, which may be full, says nothing about the build.
            log.warning("the build %s cannot be copied (%s); building it again", key, error)
        except UNREADABLE as error:
            log.warning("the build %s cannot be used (%s); building it again", key, error)
            path.unlink(missing_ok=True)
        for left in sorted(folder.rglob("*"), reverse=True):
            left.rmdir() if left.is_dir() and not left.is_symlink() else left.unlink()
        return None

    def store(self, key: str, folder: Path, sealed: bytes, finished: Finished) -> bool:
        """Store a copy of the files that the ended builder left in `folder`; False if they cannot be cached.

        `sealed` is the folder's digest when the builder ended; a copy with another digest is discarded.
        """
        note = Note(key, finished, sealed.hex(), str(folder))
        try:
            paths = build_archive.plain(folder)
            if paths is None:
                return False
            return self._store_archive(
                key, partial(build_archive.write, note=note, folder=folder, paths=paths), sealed.hex()
            )
        except UNREADABLE as error:
            log.warning("the build %s is not cached: %s", key, error)
            return False

    def receive(self, key: str, content: bytes) -> None:
        """Store an archive from another node. Raises one of UNREADABLE if it is invalid.

        An OSError means that there is no room for it here, and says nothing about the archive.
        """
        try:
            with self._unpacked(BytesIO(content), key) as (note, folder):
                paths = build_archive.plain(folder)
                if paths is None:
                    raise ValueError("its files cannot be read")
                write = partial(build_archive.write, note=note, folder=folder, paths=paths)
                if not self._store_archive(key, write, note.digest):
                    raise ValueError("its files are not those that were written")
        except OSError as error:
            if error.errno in _OF_THE_ARCHIVE:
                raise ValueError(f"it cannot be unpacked: {error}") from error
            raise

    def archive(self, key: str) -> Path:
        """The path of the build's archive, if cached. The file may be replaced or removed, but never changes."""
        return self._entries / f"{key}.zip"

    def _store_archive(self, key: str, write: Callable[[BinaryIO], object], sealed: str) -> bool:
        """Store an archive if its files match `sealed`; returns whether they do: they may change while copied."""
        descriptor, name = tempfile.mkstemp(prefix=".draft-", dir=self._entries)
        draft = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                write(file)
            if draft.stat().st_size > self._limit:  # It would evict all other builds, and then itself.
                raise OSError(errno.EFBIG, "it is larger than all builds together may be (BUILD_CACHE_MIB)")
            with self._unpacked(draft, key) as (_, copy):
                if digest(copy).hex() != sealed:
                    return False
            draft.chmod(0o400)
            draft.rename(self.archive(key))
        finally:
            draft.unlink(missing_ok=True)
        self._evict()
        return True

    @contextmanager
    def _unpacked(self, file: Path | BytesIO, key: str) -> Iterator[tuple[Note, Path]]:
        """An archive's note, and a folder with its files, which is removed at the end."""
        with tempfile.TemporaryDirectory(prefix=".check-", dir=self._entries) as name, ZipFile(file) as archive:
            note = build_archive.read_note(archive, key)
            build_archive.unpack(archive, Path(name))
            yield note, Path(name)

    def _evict(self) -> None:
        entries = []
        for entry in os.scandir(self._entries):
            with suppress(FileNotFoundError):
                entries.append((entry.stat().st_mtime, entry.stat().st_size, Path(entry.path)))
        total, now = 0, time.time()
        for used, size, path in sorted(entries, reverse=True):
            draft = path.suffix != ".zip"
            total += 0 if draft else size
            if (draft and now - used > _OLD_DRAFT_S) or (not draft and total > self._limit):
                remove(path)  # A draft or check folder of a killed process, or a build to evict.


def key_of(parts: list[Any]) -> str:
    """The key of a build: a digest of everything that its result depends on (JSON-ready)."""
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=20).hexdigest()
