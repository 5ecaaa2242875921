"""A user of its own for every stranger, where the worker is root: it shares no file, process or limit with anybody.

Whose a folder is says who works in it: the worker gives a contender's folder away, and builder and runner become its
owner. A worker that is not root leaves the folder its own, and they stay what it is.
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

from sandbox.isolation.rights import CAPABILITIES
from sandbox.isolation.rlimits import die_with_parent
from sandbox.isolation.scratch_dir import entries
from sandbox.isolation.syscalls import call, prctl

CAP_DAC_READ_SEARCH, CAP_SETPCAP, CAP_SYS_PTRACE, CAP_SYS_ADMIN = 2, 8, 19, 21

_PR_SET_KEEPCAPS, _PR_CAPBSET_DROP, _PR_GET_SECUREBITS, _PR_SET_SECUREBITS, _PR_CAP_AMBIENT = 8, 24, 27, 28, 47
_NO_SETUID_FIXUP = 1 << 2
_PR_GET_PDEATHSIG, _PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 2, 3, 4
_AMBIENT_RAISE, _AMBIENT_CLEAR = 2, 4
_CAPABILITY_VERSION_3 = 0x20080522
_HIGHEST_CAPABILITY = 63
_EMPTY_PATH = 0x1000  # AT_EMPTY_PATH: of the descriptor itself

FIRST_USER = 1 << 30
"""Far above what anybody hands out: people, services, containers' ranges."""

_SMALL_FIRST, _SMALL_COUNT = 52_000, 8_000
"""In a container that has 65,536 users; two strangers may then come to the same one, now and then."""


def held() -> int:
    """This process's effective capabilities, as a bit mask."""
    return int(_status("CapEff"), 16)


def holds(capability: int) -> bool:
    return bool(held() >> capability & 1)


def searches_everywhere() -> bool:
    """Whether a stranger can be left CAP_DAC_READ_SEARCH so that it counts, in access(2) as well."""
    fixed = prctl(_PR_GET_SECUREBITS) & _NO_SETUID_FIXUP
    return holds(CAP_DAC_READ_SEARCH) and bool(fixed or holds(CAP_SETPCAP))


def why_not() -> str | None:
    """None where strangers can have users of their own, else what is missing."""
    if os.geteuid() != 0:
        return "the worker is not root"
    missing = [f"CAP_{name}" for name, capability in CAPABILITIES.items() if not holds(capability)]
    return f"the worker lacks {', '.join(missing)}" if missing else None


def private_folder(folder: Path, *, own_user: bool) -> Path:
    """Makes the folder, for one stranger, and where `own_user` for a user that is nobody else."""
    folder.mkdir(mode=0o700)
    if own_user:
        user = _fresh_user()
        os.chown(folder, user, user)
    return folder


def give(folder: Path) -> None:
    """Everything in a private folder is its owner's, whoever made it. Raises OSError, TooMuch.

    But for a file that has a link outside of the folder too: its owner may be anybody, where the kernel lets everybody
    make such links (fs.protected_hardlinks=0). Each file is opened first, so that no link takes its place.
    """
    owner = folder.stat()
    if owner.st_uid == os.geteuid():
        return
    found = list(entries(folder))
    links: Counter[tuple[int, int]] = Counter()
    for entry in found:
        with contextlib.suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            links[status.st_dev, status.st_ino] += 1
    for entry in found:
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


def let_pass(folder: Path) -> None:
    """Whoever knows a name in the folder may go there: strangers with a user of their own. Nobody may list it."""
    if os.geteuid() == 0:
        folder.chmod(0o711)


def is_submissions(user: int | None) -> bool:
    """Whether only a submission can have that user: it is in the range that nobody else hands out."""
    return user is not None and FIRST_USER <= user < 2 * FIRST_USER


def may_be_submissions(user: int) -> bool:
    """Whether a submission may have been given that user here, in the small range of a container too."""
    small = _mapped() <= 2 * FIRST_USER
    return _SMALL_FIRST <= user < _SMALL_FIRST + _SMALL_COUNT if small else is_submissions(user)


def become(user: int, *, search_everywhere: bool) -> None:
    """That user from here on, with no capability and no way to get one. Raises OSError.

    `search_everywhere` leaves CAP_DAC_READ_SEARCH, for an interpreter that lies in a folder closed to other users.
    Only where Landlock says which files that capability is good for.
    """
    kept = 1 << CAP_DAC_READ_SEARCH if search_everywhere else 0
    if kept and not prctl(_PR_GET_SECUREBITS) & _NO_SETUID_FIXUP:
        # Else access(2) answers as if there were no capability, and compilers find no folder for temporary files.
        prctl(_PR_SET_SECUREBITS, prctl(_PR_GET_SECUREBITS) | _NO_SETUID_FIXUP)
    _bound(kept)
    if user != os.geteuid():
        prctl(_PR_SET_KEEPCAPS, 1)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    with contextlib.suppress(OSError):  # Where a kernel has no such set, there is none in it.
        prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR)
    _set_capabilities(kept)
    if kept:
        prctl(_PR_CAP_AMBIENT, _AMBIENT_RAISE, CAP_DAC_READ_SEARCH)
    # A changed user cannot read its own /proc/self unless told so; there is no core file that could be dumped.
    prctl(_PR_SET_DUMPABLE, 1)


@contextlib.contextmanager
def looking_as(user: int) -> Iterator[None]:
    """This thread may look into what that user's processes map and have open, as far as those let their user.

    Where the worker may look into everybody's anyway, nothing is changed.
    """
    if user == os.geteuid() or _traces_everybody():
        yield
        return
    parent, ours = os.getppid(), (os.getgid(), os.getuid())
    dumpable, dies = prctl(_PR_GET_DUMPABLE), ctypes.c_int()
    prctl(_PR_GET_PDEATHSIG, ctypes.addressof(dies))
    call("setfsgid", ctypes.c_int(user))
    call("setfsuid", ctypes.c_int(user))
    try:
        yield
    finally:
        call("setfsuid", ctypes.c_int(ours[1]))
        call("setfsgid", ctypes.c_int(ours[0]))
        prctl(_PR_SET_DUMPABLE, dumpable)  # Forgotten when such a thing changes, as is how it dies.
        if dies.value:
            die_with_parent(parent)


@cache
def _traces_everybody() -> bool:
    return holds(CAP_SYS_PTRACE)


def keep_only(mask: int) -> None:
    """Of this process's capabilities, and of those of all that it starts."""
    _bound(mask)
    _set_capabilities(mask)


def _bound(mask: int) -> None:
    """No program that is started from here on has others."""
    for capability in range(_HIGHEST_CAPABILITY + 1):
        if not mask >> capability & 1:
            try:
                prctl(_PR_CAPBSET_DROP, capability)
            except OSError:  # The last one is behind us, or we are not root.
                break


def _set_capabilities(mask: int) -> None:
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    words = [(mask >> shift) & 0xFFFFFFFF for shift in (0, 32)]
    data = b"".join(struct.pack("III", word, word, word) for word in words)
    call("capset", ctypes.c_char_p(header), ctypes.c_char_p(data))


def _fresh_user() -> int:
    """One that nobody has at this moment: drawn from so many that no two strangers come to the same one."""
    if _mapped() > 2 * FIRST_USER:
        return FIRST_USER + secrets.randbelow(FIRST_USER)
    return _SMALL_FIRST + secrets.randbelow(_SMALL_COUNT)


@cache
def _mapped() -> int:
    """The end of the user ids that exist in this namespace."""
    with open("/proc/self/uid_map", encoding="ascii") as mapping:
        return max(int(inside) + int(count) for inside, _, count in (line.split() for line in mapping))


def _status(field: str) -> str:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(line.split()[1] for line in status if line.startswith(f"{field}:"))
