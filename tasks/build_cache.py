"""Finished builds by what went into them, shared by every process of a node and kept over restarts.

Only trusted processes write here, and only what a dead builder left in its own folder: plain files, of a bounded size,
whose digest is the one taken when the builder had ended. A job gets a copy. So a submission decides about its own
builds, and nobody gets those who sends another source.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import logging
import os
import shutil
import stat
import struct
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backends.backend import Artifact
from domain.fault import JobCancelled, KernelFault
from domain.result import Status
from sandbox import identity
from tasks.folder_digest import digest
from tasks.moved_build import relocate

POLL_S = 0.02
MAX_BUILD_BYTES = 256 << 20
MAX_FILES = 4096
MAX_NOTE_BYTES = 4 << 20
FAULT_S = 600
"""How long it is remembered that a source does not compile: a group of the same wrong submissions, not a day's."""

_NOTE = "build.json"
_FILES = "files"
_OLD_DRAFT_S = 3600.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Finished:
    """How a build ended: with an artifact, or with a fault of the source. `output` is what the builder printed."""

    artifact: Artifact | None
    fault: KernelFault | None
    output: str
    at: float


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
        path = self._path(key)
        try:
            with tarfile.open(path, "r:") as archive:
                note = _note(archive)
                if note["fault"] is not None and not 0 <= time.time() - note["at"] <= FAULT_S:
                    return None
                _unpack(archive, folder)
            if digest(folder).hex() != note["digest"]:
                raise ValueError("its files are not those that were written")
            relocate(folder, str(note["folder"]))
            identity.give(folder)
            os.utime(path)
            return _finished(note)
        except FileNotFoundError:
            return None
        except (OSError, tarfile.TarError, ValueError, KeyError, TypeError, KernelFault) as error:
            log.warning("the build %s cannot be used (%s): it is made anew", key, error)
            path.unlink(missing_ok=True)
            _clear(folder)
            return None

    def store(self, key: str, folder: Path, sealed: bytes, finished: Finished) -> bool:
        """Keeps a copy of what the dead builder left in `folder`; False where that is not kept.

        `sealed` is the folder's digest as it was at the builder's end: a copy that has another is none.
        """
        paths = _plain(folder)
        if paths is None:
            return False
        note = {**_wire(finished), "digest": sealed.hex(), "folder": str(folder)}
        descriptor, name = tempfile.mkstemp(prefix=".draft-", dir=self._entries)
        draft = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:") as archive:
                text = json.dumps(note).encode()
                archive.addfile(_member(_NOTE, len(text)), io.BytesIO(text))
                for path in paths:
                    _copy(archive, path, folder)
            if not _holds(draft, sealed, self._entries):
                return False
            draft.chmod(0o400)
            draft.rename(self._path(key))
        except OSError as error:
            log.warning("the build %s is not kept: %s", key, error)
            return False
        finally:
            draft.unlink(missing_ok=True)
        self._evict()
        return True

    def _path(self, key: str) -> Path:
        return self._entries / f"{key}.tar"

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
                path.unlink(missing_ok=True)


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


def _plain(folder: Path) -> list[Path] | None:
    """Every file and folder of a folder; None where something else is in it, or too much."""
    paths, size = sorted(folder.rglob("*")), 0
    for path in paths:
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            size += path.lstat().st_size
        elif not stat.S_ISDIR(mode):
            return None
    return paths if len(paths) <= MAX_FILES and size <= MAX_BUILD_BYTES else None


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member


def _copy(archive: tarfile.TarFile, path: Path, folder: Path) -> None:
    name = f"{_FILES}/{path.relative_to(folder)}"
    if path.is_dir() and not path.is_symlink():
        member = _member(name, 0)
        member.type, member.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(member)
        return
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        archive.addfile(_member(name, os.fstat(file.fileno()).st_size), file)


def _holds(draft: Path, sealed: bytes, beside: Path) -> bool:
    """Whether the archive has the files that were sealed: what was copied may have been changed meanwhile."""
    with tempfile.TemporaryDirectory(prefix=".check-", dir=beside) as name, tarfile.open(draft, "r:") as archive:
        _unpack(archive, Path(name))
        return digest(Path(name)) == sealed


def _note(archive: tarfile.TarFile) -> dict[str, Any]:
    first = archive.next()
    file = archive.extractfile(first) if first is not None and first.name == _NOTE else None
    if file is None or first is None or first.size > MAX_NOTE_BYTES:
        raise ValueError("it does not begin with its note")
    note: dict[str, Any] = json.loads(file.read())
    return note


def _unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """The archive's files into the empty folder; ValueError for what no build of ours has in it.

    By hand, as tarfile's filters are not in every Python 3.11 (Debian 12 has 3.11.2).
    """
    for member in archive:
        if member.name == _NOTE:
            continue
        first, *names = member.name.split("/")
        if first != _FILES or not names or not {"", ".", ".."}.isdisjoint(names):
            raise ValueError(f"{member.name!r} is no place in a build")
        place = folder.joinpath(*names)
        place.parent.mkdir(parents=True, exist_ok=True)
        if member.isdir():
            place.mkdir(exist_ok=True)
        elif member.isreg() and (content := archive.extractfile(member)) is not None:
            with content, place.open("xb") as file:
                shutil.copyfileobj(content, file)
        else:
            raise ValueError(f"{member.name!r} is neither a file nor a folder")


def _clear(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def _wire(finished: Finished) -> dict[str, Any]:
    fault = finished.fault
    return {
        "artifact": asdict(finished.artifact) if finished.artifact is not None else None,
        "fault": [fault.status.value, fault.message, fault.log, fault.compiled] if fault is not None else None,
        "output": finished.output,
        "at": finished.at,
    }


def _finished(note: dict[str, Any]) -> Finished:
    artifact = Artifact(**note["artifact"]) if note["artifact"] is not None else None
    fault = None
    if note["fault"] is not None:
        status, message, text, compiled = note["fault"]
        fault = KernelFault(Status(status), message, text, compiled=compiled)
    return Finished(artifact, fault, note["output"], note["at"])
