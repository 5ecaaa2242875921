"""A finished build as one archive: a note that says how it ended, then the files that the builder left.

What is read is believed in nothing: an archive may come from a file that has been damaged, or from another node.
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
from domain.result import Status
from sandbox.isolation.scratch_dir import MAX_DEPTH
from sandbox.supervisor.messages import parse_facts
from tasks.builds.folder_digest import permissions

MAX_BYTES = 256 << 20
MAX_FILES = 4096
MAX_NOTE_BYTES = 4 << 20
MAX_NAME = 255
MAX_PATH = 4096
KEPT_FAULTS = (Status.COMPILE_ERROR, Status.UNSUPPORTED)

UNREADABLE = (
    *(OSError, tarfile.TarError, KernelFault),
    *(ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError),
)
"""What reading raises where no build of ours can be read."""

_NOTE = "build.json"
_FILES = "files"
_SEAL = "note"
_TYPES = (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.GNUTYPE_LONGNAME)
_ENCODING = "utf-8"
_NEEDED = {stat.S_IFREG: stat.S_IRUSR, stat.S_IFDIR: stat.S_IRWXU}
"""What the owner has to be allowed, by what it is: to read a file, and to make and find files in a folder."""

T = TypeVar("T")


@dataclass(frozen=True)
class Finished:
    """How a build ended: with an artifact, or with a fault of the source.

    `output` is what the builder printed, `at` when (epoch seconds of its node's clock), `by` whose it was.
    """

    artifact: Artifact | None
    fault: KernelFault | None
    output: str
    at: float
    by: str


@dataclass(frozen=True)
class Note:
    """What an archive says before its files: the build's key, their digest, and the folder that they were made in.

    A digest of its own covers all of that: a damaged word in it would be told as the builder's.
    """

    key: str
    finished: Finished
    digest: str
    folder: str


class _Member(tarfile.TarInfo):
    """A header of ours: a file, a folder, or the long name of either. tarfile would follow others, some for ever."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        longest = MAX_PATH if member.type == tarfile.GNUTYPE_LONGNAME else MAX_BYTES
        if member.type not in _TYPES or not 0 <= member.size <= longest:
            raise ValueError(f"{member.name[:MAX_NAME]!r} is neither a file nor a folder of a build that is kept")
        return member


def plain(folder: Path) -> list[Path] | None:
    """Every file and folder of a folder; None where something else is in it, too much, or what is closed to its owner.

    That could be copied by a referee that is root alone, and a copy of it read by no other.
    """
    paths, size = sorted(folder.rglob("*")), 0
    for path in paths:
        found = path.lstat()
        needed = _NEEDED.get(stat.S_IFMT(found.st_mode))
        if needed is None or needed & ~found.st_mode:
            return None
        size += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return paths if len(paths) <= MAX_FILES and size <= MAX_BYTES else None


def opened(path: Path) -> tarfile.TarFile:
    """An archive to read. Raises one of UNREADABLE, here and wherever something is read of it."""
    return tarfile.open(path, "r:", tarinfo=_Member, encoding=_ENCODING)


def write(file: IO[bytes], note: Note, folder: Path, paths: list[Path]) -> None:
    """An archive of those files and folders of `folder`, behind the note. Raises OSError."""
    text = sealed(_wire(note))
    with tarfile.open(fileobj=file, mode="w:", format=tarfile.GNU_FORMAT, encoding=_ENCODING) as archive:
        archive.addfile(_member(_NOTE, len(text)), io.BytesIO(text))
        for path in paths:
            _copy(archive, path, folder)


def sealed(wire: dict[str, Any]) -> bytes:
    """A note as it is written, with its own digest."""
    return json.dumps({**wire, _SEAL: _digest(wire)}).encode()


def read_note(archive: tarfile.TarFile, key: str) -> Note:
    """The first of what is read; raises one of UNREADABLE, also for one that is not whole or not `key`'s."""
    first = archive.next()
    if first is None or first.name != _NOTE or not first.isreg() or first.size > MAX_NOTE_BYTES:
        raise ValueError("it does not begin with its note")
    file = archive.extractfile(first)
    wire = _a(dict, json.loads(file.read() if file is not None else b""))
    if wire.pop(_SEAL) != _digest(wire):
        raise ValueError("its note is not the one that was written")
    note = _note(wire)
    if note.key != key:
        raise ValueError("it is another build's")
    return note


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """The archive's files into the empty folder; raises one of UNREADABLE for what no build of ours has in it.

    By hand, as tarfile's filters are not in every Python 3.11 (Debian 12 has 3.11.2).
    """
    size = count = 0
    folders: list[tuple[Path, int]] = []
    for member in islice(archive, 1, None):  # Behind the note.
        size, count = size + member.size, count + 1
        if size > MAX_BYTES or count > MAX_FILES:
            raise ValueError("it is larger than any build that is kept")
        place = folder.joinpath(*_names(member))
        place.parent.mkdir(parents=True, exist_ok=True)
        if member.isdir():
            place.mkdir(exist_ok=True)
            folders.append((place, member.mode))
        elif (content := archive.extractfile(member)) is not None:
            with content, place.open("xb") as file:
                shutil.copyfileobj(content, file)
                os.fchmod(file.fileno(), permissions(member.mode))
    for place, mode in reversed(folders):  # At the end: a folder may be closed to who would fill it.
        place.chmod(permissions(mode))


def _names(member: tarfile.TarInfo) -> list[str]:
    first, *names = member.name.split("/")
    if first != _FILES or not names or len(names) > MAX_DEPTH + 1 or not {"", ".", ".."}.isdisjoint(names):
        raise ValueError(f"{member.name[:MAX_NAME]!r} is no place in a build")
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
        found = os.fstat(file.fileno())
        archive.addfile(_member(name, found.st_size, found.st_mode), file)


def _digest(wire: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(wire, sort_keys=True).encode(), digest_size=32).hexdigest()


def _wire(note: Note) -> dict[str, Any]:
    finished, fault = note.finished, note.finished.fault
    return {
        "key": note.key,
        "artifact": asdict(finished.artifact) if finished.artifact is not None else None,
        "fault": [fault.status.value, fault.message, fault.log, fault.compiled] if fault is not None else None,
        "output": finished.output,
        "at": finished.at,
        "by": finished.by,
        "digest": note.digest,
        "folder": note.folder,
    }


def _note(wire: dict[str, Any]) -> Note:
    artifact, fault = None, None
    if wire["artifact"] is not None:
        given = wire["artifact"]
        artifact = Artifact(parse_facts(_a(dict, given["facts"])), None, _a(str, given["log"]))
        if given["deferred"] is not None:
            raise ValueError("a build that was put off is none")
    if wire["fault"] is not None:
        status, message, text, compiled = wire["fault"]
        fault = KernelFault(Status(status), _a(str, message), _a(str, text), compiled=_a(bool, compiled))
        if fault.status not in KEPT_FAULTS:
            raise ValueError(f"{status} is no end of a build that is kept")
    if (artifact is None) == (fault is None):
        raise ValueError("a build has an artifact or a fault")
    finished = Finished(artifact, fault, _a(str, wire["output"]), float(wire["at"]), _a(str, wire["by"])[:MAX_NAME])
    return Note(_a(str, wire["key"]), finished, _a(str, wire["digest"]), _a(str, wire["folder"]))


def _a(kind: type[T], value: Any) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{kind.__name__} expected, not {type(value).__name__}")
    return value
