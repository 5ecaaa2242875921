"""Gives every submission a user of its own where the worker is root: no shared files, processes or limits.

The owner of a folder decides who works in it. The worker gives the folder of a kernel to a fresh user, and builder and
runner become that user. A worker that is not root keeps the folder, and builder and runner keep the worker's user.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import stat
import struct
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from sandbox.isolation.rlimits import die_with_parent
from sandbox.isolation.scratch_dir import walk
from sandbox.isolation.syscalls import call, prctl

CAPABILITIES = {"CHOWN": 0, "DAC_OVERRIDE": 1, "KILL": 5, "SETGID": 6, "SETUID": 7}
"""Root needs these to give every submission its own user; a container gives it no others (capabilities(7))."""

CAP_DAC_READ_SEARCH, CAP_SETPCAP, CAP_SYS_PTRACE, CAP_SYS_ADMIN = 2, 8, 19, 21

_PR_SET_KEEPCAPS, _PR_CAPBSET_DROP, _PR_GET_SECUREBITS, _PR_SET_SECUREBITS, _PR_CAP_AMBIENT = 8, 24, 27, 28, 47
_NO_SETUID_FIXUP = 1 << 2
_PR_GET_PDEATHSIG, _PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 2, 3, 4
_AMBIENT_RAISE, _AMBIENT_CLEAR = 2, 4
_CAPABILITY_VERSION_3 = 0x20080522
_HIGHEST_CAPABILITY = 63
_EMPTY_PATH = 0x1000  # AT_EMPTY_PATH: of the descriptor itself

FIRST_USER = 1 << 30
"""First user id for submissions: far above the ids of people, services and containers."""

_SMALL_FIRST, _SMALL_COUNT = 52_000, 8_000
"""User ids for a container that has 65,536 of them; two submissions may then get the same one, rarely."""


def held() -> int:
    """This process's effective capabilities, as a bit mask."""
    return int(_status("CapEff"), 16)


def holds(capability: int) -> bool:
    return bool(held() >> capability & 1)


def searches_everywhere() -> bool:
    """Whether a process can keep CAP_DAC_READ_SEARCH in a way that access(2) respects too."""
    fixed = prctl(_PR_GET_SECUREBITS) & _NO_SETUID_FIXUP
    return holds(CAP_DAC_READ_SEARCH) and bool(fixed or holds(CAP_SETPCAP))


def why_not() -> str | None:
    """Why submissions cannot have users of their own; None if they can."""
    if os.geteuid() != 0:
        return "the worker is not root"
    missing = [f"CAP_{name}" for name, capability in CAPABILITIES.items() if not holds(capability)]
    return f"the worker lacks {', '.join(missing)}" if missing else None


def private_folder(folder: Path, *, own_user: bool) -> Path:
    """Makes the folder for one submission; with `own_user`, for a user that no other process has."""
    folder.mkdir(mode=0o700)
    if own_user:
        user = _fresh_user()
        os.chown(folder, user, user)
    return folder


def give(folder: Path) -> None:
    """Makes the owner of a private folder the owner of everything in it. Raises OSError, FolderTooLarge.

    It skips files with a further link outside of the folder, whose owner may be anybody: kernels may allow such links
    (fs.protected_hardlinks=0). It opens each file first, so that no link can take the file's place.
    """
    owner = folder.stat()
    if owner.st_uid == os.geteuid():
        return
    listing = list(walk(folder))
    links: Counter[tuple[int, int]] = Counter()
    for entry in listing:
        with contextlib.suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            links[status.st_dev, status.st_ino] += 1
    for entry in listing:
        place = os.open(entry.path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(place)
            elsewhere = status.st_nlink > links[status.st_dev, status.st_ino]
            if stat.S_ISDIR(status.st_mode) or not elsewhere:
                ids = ctypes.c_uint(owner.st_uid), ctypes.c_uint(owner.st_gid)
                call("fchownat", place, b"", *ids, _EMPTY_PATH)
        finally:
            os.close(place)


@contextlib.contextmanager
def owned_by_worker(folder: Path) -> Iterator[None]:
    """Inside, the worker owns a private folder and may open and empty it; afterwards its user does. Raises OSError.

    Without CAP_FOWNER, root may not change the mode of a folder that another user owns, nor move entries out of one
    with the sticky bit. CAP_CHOWN makes root the owner. No process of the user may run meanwhile.
    """
    status = folder.stat()
    of_another = status.st_uid != os.geteuid()
    if of_another:
        os.chown(folder, os.geteuid(), os.getegid())
    try:
        folder.chmod(0o700)
        yield
    finally:
        if of_another:
            os.chown(folder, status.st_uid, status.st_gid)


def allow_traversal(folder: Path) -> None:
    """Lets other users traverse the folder if they know a name in it, but not list it."""
    if os.geteuid() == 0:
        folder.chmod(0o711)


def is_submissions(user: int | None) -> bool:
    """Whether only a submission can have that user id: it is in the range reserved for them."""
    return user is not None and FIRST_USER <= user < 2 * FIRST_USER


def may_be_submissions(user: int) -> bool:
    """Whether a submission may have that user id here, also in the small range of a container."""
    small = _mapped() <= 2 * FIRST_USER
    return _SMALL_FIRST <= user < _SMALL_FIRST + _SMALL_COUNT if small else is_submissions(user)


def become(user: int, *, search_everywhere: bool) -> None:
    """Changes this process to that user, without capabilities or a way to get any. Raises OSError.

    `search_everywhere` keeps CAP_DAC_READ_SEARCH, for an interpreter in a folder that is closed to other users. Use it
    only where Landlock limits the files that the capability opens.
    """
    capabilities = 1 << CAP_DAC_READ_SEARCH if search_everywhere else 0
    if capabilities and not prctl(_PR_GET_SECUREBITS) & _NO_SETUID_FIXUP:
        # Otherwise access(2) ignores the capability, and compilers find no folder for temporary files.
        prctl(_PR_SET_SECUREBITS, prctl(_PR_GET_SECUREBITS) | _NO_SETUID_FIXUP)
    _bound(capabilities)
    if user != os.geteuid():
        prctl(_PR_SET_KEEPCAPS, 1)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    with contextlib.suppress(OSError):  # Older kernels have no ambient set.
        prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR)
    _set_capabilities(capabilities)
    if capabilities:
        prctl(_PR_CAP_AMBIENT, _AMBIENT_RAISE, CAP_DAC_READ_SEARCH)
    # Otherwise a changed user could not read its own /proc/self. Core files are off.
    prctl(_PR_SET_DUMPABLE, 1)


@contextlib.contextmanager
def inspecting_as(user: int) -> Iterator[None]:
    """Lets this thread inspect the memory maps and open files of that user's processes, within that user's rights.

    Changes nothing where the worker may inspect every process anyway.
    """
    if user == os.geteuid() or _can_trace_all():
        yield
        return
    parent, own_ids = os.getppid(), (os.getgid(), os.getuid())
    dumpable, dies = prctl(_PR_GET_DUMPABLE), ctypes.c_int()
    prctl(_PR_GET_PDEATHSIG, ctypes.addressof(dies))
    call("setfsgid", ctypes.c_int(user))
    call("setfsuid", ctypes.c_int(user))
    try:
        yield
    finally:
        call("setfsuid", ctypes.c_int(own_ids[1]))
        call("setfsgid", ctypes.c_int(own_ids[0]))
        prctl(_PR_SET_DUMPABLE, dumpable)  # The kernel clears this when credentials change, and the death signal too.
        if dies.value:
            die_with_parent(parent)


@cache
def _can_trace_all() -> bool:
    return holds(CAP_SYS_PTRACE)


def keep_only(mask: int) -> None:
    """Drops all other capabilities, for this process and for everything that it starts."""
    _bound(mask)
    _set_capabilities(mask)


def _bound(mask: int) -> None:
    """Limits the capabilities of every program that is started from here on."""
    for capability in range(_HIGHEST_CAPABILITY + 1):
        if not mask >> capability & 1:
            try:
                prctl(_PR_CAPBSET_DROP, capability)
            except OSError:  # The last capability was reached, or this process is not root.
                break


def _set_capabilities(mask: int) -> None:
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    words = [(mask >> shift) & 0xFFFFFFFF for shift in (0, 32)]
    data = b"".join(struct.pack("III", word, word, word) for word in words)
    call("capset", ctypes.c_char_p(header), ctypes.c_char_p(data))


def _fresh_user() -> int:
    """A random user id, from a range so large that two submissions do not get the same one."""
    if _mapped() > 2 * FIRST_USER:
        return FIRST_USER + secrets.randbelow(FIRST_USER)
    return _SMALL_FIRST + secrets.randbelow(_SMALL_COUNT)


@cache
def _mapped() -> int:
    """The end of the range of user ids in this namespace."""
    with open("/proc/self/uid_map", encoding="ascii") as mapping:
        return max(int(inside) + int(count) for inside, _, count in (line.split() for line in mapping))


def _status(field: str) -> str:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(line.split()[1] for line in status if line.startswith(f"{field}:"))
