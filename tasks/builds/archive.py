"""A finished build as a zip archive: a note with the outcome, then the files that the builder left.

Readers trust nothing in it: the archive may come from a damaged file, or from another node.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import zlib
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from struct import error as StructError
from typing import IO, Any, TypeVar
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

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
CACHEABLE_FAULTS = (Status.COMPILE_ERROR, Status.UNSUPPORTED)

UNREADABLE = (
    *(OSError, EOFError, BadZipFile, StructError, zlib.error, KernelFault),
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError),
)
"""Exceptions that reading an archive raises if it is no valid build."""

_NOTE = "build.json"
_FILES = "files"
_BYTES = "latin-1"
"""Names of files are bytes, which need not be UTF-8: the archive has each byte as the character of its number."""
_LEVEL = 1
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
    """The header of an archive: the build's key, the digest of its files, and the folder in which they were built."""

    key: str
    finished: Finished
    digest: str
    folder: str


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


def write(file: IO[bytes], note: Note, folder: Path, paths: list[Path]) -> None:
    """Write the note, then those files and folders of `folder`. Raises OSError."""
    with ZipFile(file, "w") as archive:
        archive.writestr(_NOTE, json.dumps(_wire(note)))
        for path in paths:
            _copy(archive, path, folder)


def deflated(path: Path) -> bytes:
    """The archive at `path` with compressed entries, as it goes to other nodes. Raises one of UNREADABLE."""
    packed = BytesIO()
    with ZipFile(path) as archive, ZipFile(packed, "w") as copy:
        for member in archive.infolist():
            copy.writestr(member, archive.read(member), ZIP_DEFLATED, _LEVEL)
    return packed.getvalue()


def read_note(archive: ZipFile, key: str) -> Note:
    """Read the note, which comes first. Raises one of UNREADABLE, also for a damaged note or that of another key."""
    members = archive.infolist()
    if any(member.compress_type not in (ZIP_STORED, ZIP_DEFLATED) for member in members):
        raise ValueError("it is packed in another way than any cached build")
    first = members[0]
    if first.filename != _NOTE or first.file_size > MAX_NOTE_BYTES:
        raise ValueError("it does not begin with its note")
    with archive.open(first) as file:
        text = file.read(MAX_NOTE_BYTES)  # Without a number it would unpack 2 GiB first, whatever the size told.
    note = _note(_typed(dict, json.loads(text)))
    if note.key != key:
        raise ValueError("it is another build's")
    return note


def unpack(archive: ZipFile, folder: Path) -> None:
    """Unpack the archive into the empty folder; raises one of UNREADABLE for entries that no valid build has."""
    members = archive.infolist()[1:]  # The note is first.
    size = sum(max(member.file_size, member.compress_size) for member in members)  # Members may overlap.
    if len(members) > MAX_FILES or size > MAX_BYTES:
        raise ValueError("it is larger than any cached build")
    folders: list[tuple[Path, ZipInfo]] = []
    for member in members:
        path = folder.joinpath(*_names(member))
        path.parent.mkdir(parents=True, exist_ok=True)
        if member.is_dir():
            path.mkdir(exist_ok=True)
            folders.append((path, member))
            continue
        with archive.open(member) as content, path.open("xb") as file:
            shutil.copyfileobj(content, file)
            os.fchmod(file.fileno(), _mode(member))
    for path, member in reversed(folders):  # At the end, because a folder's mode may forbid to fill it.
        path.chmod(_mode(member))


def _names(member: ZipInfo) -> list[str]:
    first, *names = os.fsdecode(member.filename.removesuffix("/").encode(_BYTES)).split("/")
    if first != _FILES or not names or len(names) > MAX_DEPTH + 1 or not {"", ".", ".."}.isdisjoint(names):
        raise ValueError(f"{member.filename[:MAX_NAME]!r} is no path of a build")
    return names


def _mode(member: ZipInfo) -> int:
    return permissions(member.external_attr >> 16)


def _copy(archive: ZipFile, path: Path, folder: Path) -> None:
    name = f"{_FILES}/{os.fsencode(path.relative_to(folder)).decode(_BYTES)}"
    if path.is_dir() and not path.is_symlink():
        member, content, mode = ZipInfo(f"{name}/"), b"", path.stat().st_mode
    else:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            member, content, mode = ZipInfo(name), file.read(), os.fstat(file.fileno()).st_mode
    member.external_attr = permissions(mode) << 16
    archive.writestr(member, content)  # Not compressed: to unpack 50 MiB would take a quarter of a second more.


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
