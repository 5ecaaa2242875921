"""A finished build as a tar archive: a note with the outcome, then the files that the builder left.

Readers trust nothing in it: the archive may come from a damaged file, or from another node.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import tarfile
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Self, TypeVar

from backends.base import Artifact
from domain.fault import KernelFault
from domain.result import Lack, Status
from sandbox.isolation.scratch_dir import MAX_DEPTH
from sandbox.supervisor.messages import parse_example, parse_facts
from tasks.builds.folder_digest import permissions

MAX_BYTES = 256 << 20
MAX_FILES = 4096
MAX_NOTE_BYTES = 4 << 20
MAX_NAME = 255
MAX_PATH = 4096
CACHEABLE_FAULTS = (Status.COMPILE_ERROR, Status.UNSUPPORTED)

UNREADABLE = (
    *(OSError, tarfile.TarError, KernelFault),
    *(ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError),
)
"""Exceptions that reading an archive raises if it is no valid build."""

_NOTE = "build.json"
_FILES = "files"
_SEAL = "note"
_TYPES = (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.GNUTYPE_LONGNAME)
_ENCODING = "utf-8"
_NEEDED = {stat.S_IFREG: stat.S_IRUSR, stat.S_IFDIR: stat.S_IRWXU}
"""Permissions that the owner needs, by file type: to read a file, and to create and find files in a folder."""

T = TypeVar("T")


@dataclass(frozen=True)
class Finished:
    """The outcome of a build: an artifact, or a fault of the source.

    `output` is what the builder printed, `at` the time (epoch seconds of its node's clock), `by` its node's name.
    """

    artifact: Artifact | None
    fault: KernelFault | None
    output: str
    at: float
    by: str


@dataclass(frozen=True)
class Note:
    """The header of an archive: the build's key, the digest of its files, and the folder in which they were built.

    The note has a digest of its own, because damaged text in it would otherwise be reported as the builder's.
    """

    key: str
    finished: Finished
    digest: str
    folder: str


class _Member(tarfile.TarInfo):
    """A tar header of a file, a folder, or a long name; all others are rejected, as tarfile may follow them forever."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        longest = MAX_PATH if member.type == tarfile.GNUTYPE_LONGNAME else MAX_BYTES
        if member.type not in _TYPES or not 0 <= member.size <= longest:
            raise ValueError(f"{member.name[:MAX_NAME]!r} is neither a file nor a folder of a cached build")
        return member


def plain(folder: Path) -> list[Path] | None:
    """All files and folders below a folder; None if it has other entries, too many, or one that its owner cannot read.

    Only a referee that is root could copy such an entry, and no other referee could read the copy.
    """
    paths, size = sorted(folder.rglob("*")), 0
    for path in paths:
        status = path.lstat()
        needed = _NEEDED.get(stat.S_IFMT(status.st_mode))
        if needed is None or needed & ~status.st_mode:
            return None
        size += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return paths if len(paths) <= MAX_FILES and size <= MAX_BYTES else None


def opened(path: Path) -> tarfile.TarFile:
    """Open an archive for reading. Opening and reading raise one of UNREADABLE."""
    return tarfile.open(path, "r:", tarinfo=_Member, encoding=_ENCODING)


def write(file: IO[bytes], note: Note, folder: Path, paths: list[Path]) -> None:
    """Write the note, then those files and folders of `folder`. Raises OSError."""
    text = sealed(_wire(note))
    with tarfile.open(fileobj=file, mode="w:", format=tarfile.GNU_FORMAT, encoding=_ENCODING) as archive:
        archive.addfile(_member(_NOTE, len(text)), io.BytesIO(text))
        for path in paths:
            _copy(archive, path, folder)


def sealed(wire: dict[str, Any]) -> bytes:
    return json.dumps({**wire, _SEAL: _digest(wire)}).encode()


def read_note(archive: tarfile.TarFile, key: str) -> Note:
    """Read the note, which comes first. Raises one of UNREADABLE, also for a damaged note or that of another key."""
    first = archive.next()
    if first is None or first.name != _NOTE or not first.isreg() or first.size > MAX_NOTE_BYTES:
        raise ValueError("it does not begin with its note")
    file = archive.extractfile(first)
    wire = _typed(dict, json.loads(file.read() if file is not None else b""))
    if wire.pop(_SEAL) != _digest(wire):
        raise ValueError("its note is not the one that was written")
    note = _note(wire)
    if note.key != key:
        raise ValueError("it is another build's")
    return note


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack the archive into the empty folder; raises one of UNREADABLE for entries that no valid build has.

    Implemented here because some Python 3.11 versions lack tarfile's filters (Debian 12 has 3.11.2).
    """
    size = count = 0
    folders: list[tuple[Path, int]] = []
    for member in islice(archive, 1, None):  # The note is first.
        size, count = size + member.size, count + 1
        if size > MAX_BYTES or count > MAX_FILES:
            raise ValueError("it is larger than any cached build")
        path = folder.joinpath(*_names(member))
        path.parent.mkdir(parents=True, exist_ok=True)
        if member.isdir():
            path.mkdir(exist_ok=True)
            folders.append((path, member.mode))
        elif (content := archive.extractfile(member)) is not None:
            with content, path.open("xb") as file:
                shutil.copyfileobj(content, file)
                os.fchmod(file.fileno(), permissions(member.mode))
    for path, mode in reversed(folders):  # At the end, because a folder's mode may forbid to fill it.
        path.chmod(permissions(mode))


def _names(member: tarfile.TarInfo) -> list[str]:
    first, *names = member.name.split("/")
    if first != _FILES or not names or len(names) > MAX_DEPTH + 1 or not {"", ".", ".."}.isdisjoint(names):
        raise ValueError(f"{member.name[:MAX_NAME]!r} is no path of a build")
    return names


def _member(name: str, size: int, mode: int = 0o644) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, permissions(mode)
    return member


def _copy(archive: tarfile.TarFile, path: Path, folder: Path) -> None:
    name = f"{_FILES}/{path.relative_to(folder)}"
    if path.is_dir() and not path.is_symlink():
        member = _member(name, 0, path.stat().st_mode)
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
        return
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        archive.addfile(_member(name, status.st_size, status.st_mode), file)


def _digest(wire: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(wire, sort_keys=True).encode(), digest_size=32).hexdigest()


def _wire(note: Note) -> dict[str, Any]:
    finished, fault = note.finished, note.finished.fault
    return {
        "key": note.key,
        "artifact": asdict(finished.artifact) if finished.artifact is not None else None,
        "fault": None if fault is None else [fault.status, fault.message, fault.log, fault.compiled, fault.lacks],
        "output": finished.output,
        "at": finished.at,
        "by": finished.by,
        "digest": note.digest,
        "folder": note.folder,
    }


def _note(wire: dict[str, Any]) -> Note:
    artifact, fault = None, None
    if wire["artifact"] is not None:
        artifact_fields = wire["artifact"]
        artifact = Artifact(
            parse_facts(_typed(dict, artifact_fields["facts"])),
            None,
            _typed(str, artifact_fields["log"]),
            parse_example(artifact_fields["example"]),
        )
        if artifact_fields["deferred"] is not None:
            raise ValueError("a build that was put off is none")
    if wire["fault"] is not None:
        status, message, text, compiled, lack = wire["fault"]
        lacks = None if lack is None else Lack(lack)
        texts = _typed(str, message), _typed(str, text)
        fault = KernelFault(Status(status), *texts, compiled=_typed(bool, compiled), lacks=lacks)
        if fault.status not in CACHEABLE_FAULTS:
            raise ValueError(f"{status} is no outcome of a cached build")
    if (artifact is None) == (fault is None):
        raise ValueError("a build has an artifact or a fault")
    finished = Finished(
        artifact, fault, _typed(str, wire["output"]), float(wire["at"]), _typed(str, wire["by"])[:MAX_NAME]
    )
    return Note(_typed(str, wire["key"]), finished, _typed(str, wire["digest"]), _typed(str, wire["folder"]))


def _typed(kind: type[T], value: Any) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{kind.__name__} expected, not {type(value).__name__}")
    return value
