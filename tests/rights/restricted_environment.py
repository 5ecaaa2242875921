"""A set of rights without a container engine: mounts, a filter, a user, then a program.

`python -m tests.rights.restricted_environment NAME FOLDER ARGUMENT...`, as root, runs this interpreter with those
arguments. It can write FOLDER and nothing else that lasts. Whatever it needs lies outside closed homes there: a folder
that other users cannot enter is covered by an empty one, in which that alone appears again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

from domain.paths import ROOT
from sandbox.isolation import uid
from sandbox.isolation.rlimits import die_with_parent, no_new_privileges
from sandbox.isolation.seccomp import NEW_NAMESPACES
from sandbox.isolation.seccomp_program import (
    ALLOW,
    IF_ANY_BIT,
    RETURN,
    entrance,
    fail,
    guard,
    install_program,
    instruction,
    load,
    rule,
)
from sandbox.isolation.syscalls import call
from tests.rights.rights_sets import EVERY_SET, Rights

NEW_MOUNTS = 0x00020000
READ_ONLY, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 32, 4096, 1 << 14, 1 << 18
KEPT = {"nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024, "nodiratime": 2048, "relatime": 1 << 21}
DETACH = 2
STAYS_WRITABLE = ("/proc", "/dev")
MOUNT_POINTS = ("/mnt", "/media", "/srv")
NOT_IN_A_CONTAINER = (
    *("unshare", "setns", "mount", "umount2", "pivot_root", "open_tree", "move_mount", "mount_setattr"),
    *("fsopen", "fsconfig", "fsmount"),
)
"""What Docker's and containerd's filters refuse whoever lacks CAP_SYS_ADMIN."""


def mount(source: str | Path | None, target: str | Path, kind: str, flags: int, options: str = "") -> None:
    """mount(2); raises OSError."""
    text = [os.fsencode(each) if each is not None else None for each in (source, target, kind)]
    call("mount", *text, ctypes.c_ulong(flags), options.encode() or None)


def needed() -> list[Path]:
    """Folders of the interpreter, of its packages and of the checkout, none of them below another."""
    places = {Path(place).resolve() for place in (ROOT, sys.prefix, sys.base_prefix, *sys.path) if os.path.isdir(place)}
    return [place for place in sorted(places) if not any(other in places for other in place.parents)]


def closed(places: list[Path]) -> list[Path]:
    """The first folder on the way to each of them that other users cannot enter."""
    found = set()
    for place in places:
        steps = [step for step in (*reversed(place.parents), place) if not step.stat().st_mode & 0o001]
        found.update(steps[:1])
    return sorted(found)


def new_mounts() -> None:
    """What is mounted from here on is seen by this process, and those that it starts, alone. Raises OSError."""
    call("unshare", ctypes.c_ulong(NEW_MOUNTS))
    mount(None, "/", "", RECURSIVE | PRIVATE)


def enter(rights: Rights, folder: Path) -> None:
    """This process has those rights from here on, and new mounts of its own. Raises OSError."""
    new_mounts()
    os.chown(folder, rights.owner, rights.owner)
    folder.chmod(rights.mode)
    covered = {place: 0o755 for place in closed([*needed(), folder]) if place != folder}
    if rights.temporary is not None:
        covered = {place: mode for place, mode in covered.items() if Path("/tmp") not in place.parents}
        covered[Path("/tmp")] = rights.temporary
    _cover(covered, [*needed(), folder])
    if rights.shared_memory is not None:
        mount("tmpfs", "/dev/shm", "tmpfs", 2 | 4 | 8, f"mode={rights.shared_memory:o},size=1g")
    if rights.read_only:
        _make_read_only([folder, Path("/tmp")])
    drop(rights)


def drop(rights: Rights) -> None:
    """Gives up what is not among those rights."""
    os.setgroups([])
    os.setresgid(rights.user, rights.user, rights.user)
    if rights.user:
        os.setresuid(rights.user, rights.user, rights.user)
    elif rights.capabilities is not None:
        uid.keep_only(sum(1 << each for each in rights.capabilities))
    if rights.no_new_privileges:
        no_new_privileges()
    if not rights.new_namespaces:
        _refuse_namespaces()


def _cover(folders: dict[Path, int], shown: list[Path]) -> None:
    """Puts an empty file system of that mode over each folder, and what is shown there back into it."""
    behind = next(Path(place) for place in MOUNT_POINTS if os.path.isdir(place))
    mount("tmpfs", behind, "tmpfs", 0, "mode=0700")
    hidden = [place for place in shown if any(cover in (place, *place.parents) for cover in folders)]
    for number, place in enumerate(hidden):
        (behind / str(number)).mkdir()
        mount(place, behind / str(number), "", BIND | RECURSIVE)
    for cover, mode in folders.items():
        mount("tmpfs", cover, "tmpfs", 0, f"mode={mode:o}")
    for number, place in enumerate(hidden):
        place.mkdir(parents=True, exist_ok=True)
        mount(behind / str(number), place, "", BIND | RECURSIVE)
    for place in shown:
        if place not in hidden:
            mount(place, place, "", BIND | RECURSIVE)  # A mount of its own: what is above it may become read-only.
    call("umount2", os.fsencode(behind), DETACH)


def _make_read_only(writable: list[Path]) -> None:
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        fields = line.split()
        place, options = Path(fields[4].encode().decode("unicode_escape")), fields[5].split(",")
        if place in writable or str(place).startswith(STAYS_WRITABLE):
            continue
        flags = sum(KEPT.get(option, 0) for option in options)
        try:
            mount(None, place, "", REMOUNT | BIND | READ_ONLY | flags)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINVAL):  # It is covered by another one by now.
                raise


def _refuse_namespaces() -> None:
    """As a container's filter does. Not its other rules: what they refuse, submissions' own filter refuses too."""
    program = entrance() + b"".join(rule(name, [fail(errno.EPERM)]) for name in NOT_IN_A_CONTAINER)
    program += rule("clone3", [fail(errno.ENOSYS)])
    namespaces = guard(([load(0)], IF_ANY_BIT, [NEW_NAMESPACES]))
    program += rule("clone", [*namespaces, instruction(RETURN, ALLOW)])
    install_program(program)


def main() -> None:
    name, folder, *arguments = sys.argv[1:]
    rights = next(each for each in EVERY_SET if each.name == name)
    parent = os.getppid()
    enter(rights, Path(folder).resolve())
    die_with_parent(parent)  # Forgotten when the user changes.
    os.chdir(ROOT)
    os.execv(sys.executable, [sys.executable, *arguments])


if __name__ == "__main__":
    main()
