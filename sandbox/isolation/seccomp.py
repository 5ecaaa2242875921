"""The system calls that a stranger's process does without: a seccomp filter, assembled here and installed by prctl.

A refused call fails with EPERM, so that honest code gets an error it can report, or with ENOSYS where it has another
way then. A call by another architecture's table (i386, x32), where the numbers would mean something else, ends the
process.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import stat
import struct
from collections.abc import Iterable, Sequence
from functools import cache

from sandbox.isolation.rlimits import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG
from sandbox.isolation.syscalls import MACHINE, call, number, prctl

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*
_X32 = 0x40000000

_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000

_PR_SET_SECCOMP, _MODE_FILTER, _GET_ACTION_AVAIL = 22, 2, 2
_AF_UNIX, _DATAGRAM, _TYPE_OF_SOCKET = 1, 2, 0xF
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_SIBLING = 0x8000  # CLONE_PARENT: a child of the zygote's, which nobody would stop, count or see as the stranger's
_THREAD, _SAME_FILES = 0x10000, 0x400  # CLONE_THREAD, CLONE_FILES
_OWN_FILES = 2  # CLOSE_RANGE_UNSHARE: as a thread without CLONE_FILES, with descriptors where nobody looks for them
_PERSONALITIES = (0, 0xFFFFFFFF)  # what every process has, and the question which one that is
_SET_OWNER, _IOCTL_SET_OWNER = (8, 15), (0x8901, 0x8902)  # whom a descriptor signals
_OF_PROCESSES = {
    **{"prlimit64": 0, "sched_setaffinity": 0, "sched_setattr": 0, "sched_setparam": 0, "sched_setscheduler": 0},
    **{"setpriority": 1, "ioprio_set": 1},
}
"""Which argument of these calls names the process that they change."""

_SIGNALS_BY_PID = {"kill": 1, "tgkill": 2, "tkill": 1, "rt_sigqueueinfo": 1, "rt_tgsigqueueinfo": 2}
"""Calls whose first argument says who is signalled, and which argument says by what."""
_SET_SIGNAL, _EXIT_SIGNAL = 10, 0xFF  # what a descriptor signals with; of clone's flags, what a child does as it ends
_NOBODYS = (signal.SIGKILL, signal.SIGCONT)
"""Signals that the kernel does not send for a stranger: by the second, whoever looks at a process that the referee has
stopped would let it go on (inotify on its own files in /proc, whose descriptor signals)."""
_TIME_LIMITS = (0, 15)  # RLIMIT_CPU and RLIMIT_RTTIME: who is over them is killed
_ALL_BITS = 0xFFFFFFFF

REFUSED = (
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),  # they would do behind the filter what it refuses
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd"),
    *("keyctl", "add_key", "request_key"),
    *("mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "mount_setattr"),
    *("fsopen", "fsconfig", "fsmount", "fspick", "quotactl", "quotactl_fd", "sysfs", "open_tree_attr"),
    *("unshare", "setns", "sethostname", "setdomainname"),
    *("bpf", "perf_event_open", "userfaultfd", "fanotify_init", "lookup_dcookie", "syslog", "seccomp"),
    *("open_by_handle_at", "name_to_handle_at"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
    *("create_module", "query_module", "get_kernel_syms", "nfsservctl", "uselib", "_sysctl"),
    *("reboot", "swapon", "swapoff", "acct", "vhangup", "iopl", "ioperm", "modify_ldt", "memfd_secret"),
    *("settimeofday", "clock_settime", "adjtimex", "clock_adjtime"),
    "timer_create",  # what it sends lies in memory, so it could be SIGKILL; setitimer sends SIGALRM
    # Memory and queues that outlive who made them; of those that there are, a number is all that it takes to use one.
    *("shmget", "shmat", "shmctl", "msgget", "msgsnd", "msgrcv", "msgctl"),
    *("semget", "semop", "semtimedop", "semctl"),
    *("mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify", "mq_getsetattr"),
)

ABSENT = (
    # Its flags lie in memory; libc falls back on clone.
    "clone3",
    "openat2",  # So does the mode of what it creates; libc does not use it.
    # Reads that go on after the call: whoever ends waits for them in the kernel, for as long as he likes.
    *("io_setup", "io_submit", "io_getevents", "io_pgetevents", "io_cancel", "io_destroy"),
)
"""These fail with ENOSYS, as where the kernel has none: honest code then goes another way."""

CHANGES_OF_FILES_OF_ITS_USER = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchown", "fchownat"),
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
    *("removexattr", "lremovexattr", "fremovexattr", "removexattrat", "file_setattr"),
)
"""Landlock does not know them: refused where the files of the stranger's user are the worker's too. A descriptor that
was opened for reading is enough for those that take one, and Landlock lets whatever is readable be opened."""

_FILE_SYSTEMS_IOCTLS = tuple(kind << 8 for kind in (0x58, 0x66, 0x76, 0x94, 0xF5))
"""The second byte of such requests: XFS and freezing, ext4 and flags, versions, btrfs and clones, f2fs. Their owner may
set flags (chattr), seal a file (fs-verity) or close a subvolume by a descriptor for reading."""
_KIND_OF_IOCTL = 0xFF00

_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
"""Which argument of these calls is a file's mode. mkdir takes none of these bits from it."""
_MODES_OF_OPENED = {"open": (1, 2), "openat": (2, 3)}
"""Flags, and the mode of what is created; without O_CREAT or O_TMPFILE that may be anything."""
_LENDS_RIGHTS = stat.S_ISUID | stat.S_ISGID
_CREATES = os.O_CREAT | (os.O_TMPFILE & ~os.O_DIRECTORY)

_LEASES = (1024, 1040)
"""F_SETLEASE and F_SETDELEG of fcntl: whoever opens a file on which its owner has one waits for up to 45 seconds."""


def available() -> str | None:
    """None where this kernel takes our filter, else why not."""
    if MACHINE not in _ARCHITECTURES:
        return f"no table of system calls for {MACHINE}"
    try:
        call("seccomp", _GET_ACTION_AVAIL, 0, ctypes.byref(ctypes.c_uint32(_KILL)))
    except OSError as error:
        return f"the kernel has none ({error.strerror})"
    return None


@cache
def rules(*, own_user: bool, truncation_elsewhere: bool) -> bytes:
    """The filter without its end; costs half a millisecond the first time.

    Without a user of its own, no change of a file's mode, owner or attributes; with one, no file that lends whoever
    runs it its owner's rights. Landlock keeps files from being cut from ABI 3 on; `truncation_elsewhere` says that it
    does.
    """
    found = _entrance() + b"".join(_rule(name, [_give(errno.EPERM)]) for name in REFUSED)
    found += b"".join(_rule(name, [_give(errno.ENOSYS)]) for name in ABSENT)
    exit_signal = [_load(0), _instruction(_AND, _EXIT_SIGNAL)]
    found += _rule(
        "clone",
        [
            *_guard(([_load(0)], _IF_ANY_BIT, [_NEW_NAMESPACES | _SIBLING])),
            *_guard((exit_signal, _IF_EQUAL, _NOBODYS)),
            *_guard(([_load(0), _instruction(_AND, _THREAD | _SAME_FILES)], _IF_EQUAL, [_THREAD])),
            _instruction(_RETURN, _ALLOW),
        ],
    )
    found += _rule("close_range", [*_guard(([_load(2)], _IF_ANY_BIT, [_OWN_FILES])), _instruction(_RETURN, _ALLOW)])
    found += _rule("setrlimit", _unless(0, _TIME_LIMITS))
    for name in ("socket", "socketpair"):
        found += _rule(name, _only(0, [_AF_UNIX]) if own_user else _unix_stream())
    found += _rule("personality", _only(0, _PERSONALITIES))
    # A parent's end could send SIGCONT to a process that the referee has stopped. Said to be done, and not done:
    # torch.multiprocessing asks for it in whatever it starts, and gives up where it is refused.
    parents_end = [_load(0), _instruction(_IF_EQUAL, PR_SET_PDEATHSIG, 0, 1), _give(0)]
    found += _rule("prctl", parents_end + _unless(0, [_PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER]))
    if not own_user:
        # Before the rules by mode: of two rules for one call the first counts.
        found += b"".join(_rule(name, [_give(errno.EPERM)]) for name in CHANGES_OF_FILES_OF_ITS_USER)
        # Landlock does not know sockets that are files, and those of the worker's user are open to it. As where nobody
        # listens; a datagram needs no connection.
        found += _rule("connect", [_give(errno.ECONNREFUSED)])
    lends = b"".join(
        _rule(name, [*_guard(([_load(place)], _IF_ANY_BIT, [_LENDS_RIGHTS])), _instruction(_RETURN, _ALLOW)])
        for name, place in _MODES.items()
    )
    for name, (flags, mode) in _MODES_OF_OPENED.items():
        creates = ([_load(flags)], _IF_ANY_BIT, [_CREATES])
        before = _guard(creates, ([_load(mode)], _IF_ANY_BIT, [_LENDS_RIGHTS]))
        before += [] if truncation_elsewhere else _no_truncation(flags)
        lends += _rule(name, [*before, _instruction(_RETURN, _ALLOW)])
    if not truncation_elsewhere:
        found += _rule("truncate", [_give(errno.EPERM)])
    return found + lends


def install(filter_rules: bytes, *, own_user: bool, signals_elsewhere: bool) -> None:
    """For this thread and all that it will start. Needs no_new_privs. Raises OSError.

    Without a user of its own, it changes the limits, priority and processors of nobody but itself. Unless
    `signals_elsewhere` (a user of its own, or Landlock from ABI 6 on), it signals nobody but itself either.

    Whom this installs it for is not killed by itself or by what it has started, so that who finds it killed need not
    take that for its own doing; what it starts may be. docs/security.md has the ways that a filter does not see.
    """
    program = filter_rules
    itself, anybody = [os.getpid(), 0], [_instruction(_RETURN, _ALLOW)]
    for name, place in _OF_PROCESSES.items():
        before = _no_time_limit(1, 2) if name == "prlimit64" else []
        if before or not own_user:
            program += _rule(name, before + (anybody if own_user else _only(place, itself)))
    # Its group has its number, whoever else is in it; 0 is the group of who asks, -1 is everybody.
    with_it = [*itself, -1, -os.getpid()]
    for name, place in _SIGNALS_BY_PID.items():
        deadly = ([_load(place)], _IF_EQUAL, [signal.SIGKILL])
        # By the number of a thread, which nobody knows beforehand, honest code kills nobody.
        before = _guard(deadly, ([_load(0)], _IF_EQUAL, with_it)) if name == "kill" else _guard(deadly)
        program += _rule(name, before + (anybody if signals_elsewhere else _only(0, itself)))
    by_descriptor = _unless(1, [signal.SIGKILL]) if signals_elsewhere else [_give(errno.EPERM)]
    program += _rule("pidfd_send_signal", by_descriptor)
    before = _guard(([_load(1)], _IF_EQUAL, [_SET_SIGNAL]), ([_load(2)], _IF_EQUAL, _NOBODYS))
    before += _guard(([_load(1)], _IF_EQUAL, _LEASES))
    program += _rule("fcntl", before + (anybody if signals_elsewhere else _unless(1, _SET_OWNER)))
    of_file_systems = ([_load(1), _instruction(_AND, _KIND_OF_IOCTL)], _IF_EQUAL, _FILE_SYSTEMS_IOCTLS)
    before = [] if own_user else _guard(of_file_systems, code=errno.ENOTTY)  # As where a file system has none of them.
    if before or not signals_elsewhere:
        program += _rule("ioctl", before + (anybody if signals_elsewhere else _unless(1, _IOCTL_SET_OWNER)))
    program += _instruction(_RETURN, _ALLOW)
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code)))
    prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(header))


def _entrance() -> bytes:
    """Ends the process for another architecture; leaves the call's number loaded."""
    start = _instruction(_LOAD, _ARCHITECTURE_AT)
    start += _instruction(_IF_EQUAL, _ARCHITECTURES[MACHINE], 1, 0) + _instruction(_RETURN, _KILL)
    start += _instruction(_LOAD, _NUMBER_AT)
    if MACHINE == "x86_64":
        start += _instruction(_IF_AT_LEAST, _X32, 0, 1) + _instruction(_RETURN, _KILL)
    return start


def _rule(name: str, body: list[bytes]) -> bytes:
    """`body`, which ends in a return, for that call; nothing where there is no such call."""
    here = number(name)
    return b"" if here is None else _instruction(_IF_EQUAL, here, 0, len(body)) + b"".join(body)


def _only(argument: int, values: Iterable[int]) -> list[bytes]:
    wanted = list(values)
    tests = [_instruction(_IF_EQUAL, value, len(wanted) - place, 0) for place, value in enumerate(wanted)]
    return [_load(argument), *tests, _give(errno.EPERM), _instruction(_RETURN, _ALLOW)]


def _unless(argument: int, values: Iterable[int]) -> list[bytes]:
    return [*_guard(([_load(argument)], _IF_EQUAL, list(values))), _instruction(_RETURN, _ALLOW)]


Condition = tuple[list[bytes], int, Sequence[int]]
"""What loads a word, and a test that one of the values is to pass."""


def _guard(*conditions: Condition, code: int = errno.EPERM) -> list[bytes]:
    """Refuses where all conditions hold, and goes on to what follows it where one does not."""
    found = [_give(code)]
    for load, test, values in reversed(conditions):
        last = len(values) - 1
        tests = [
            _instruction(test, value & _ALL_BITS, last - place, len(found) if place == last else 0)
            for place, value in enumerate(values)
        ]
        found = [*load, *tests, *found]
    return found


def _no_time_limit(resource: int, new: int) -> list[bytes]:
    """Refuses to set a limit of time; `new` is an address, 0 for who only asks which there is."""
    of_time = ([_load(resource)], _IF_EQUAL, _TIME_LIMITS)
    words = (_load(new), _load_upper(new))
    return [each for word in words for each in _guard(of_time, ([word], _IF_ANY_BIT, [_ALL_BITS]))]


def _unix_stream() -> list[bytes]:
    return [
        _load(0),
        _instruction(_IF_EQUAL, _AF_UNIX, 0, 3),
        _load(1),
        _instruction(_AND, _TYPE_OF_SOCKET),
        _instruction(_IF_EQUAL, _DATAGRAM, 0, 1),
        _give(errno.EPERM),
        _instruction(_RETURN, _ALLOW),
    ]


def _no_truncation(flags: int) -> list[bytes]:
    """A file that is opened for reading may be cut all the same; one that is opened for writing is Landlock's."""
    return [
        _load(flags),
        _instruction(_IF_ANY_BIT, os.O_TRUNC, 0, 2),
        _instruction(_IF_ANY_BIT, os.O_WRONLY | os.O_RDWR, 1, 0),
        _give(errno.EPERM),
    ]


def _load(argument: int) -> bytes:
    """The lower half of the argument: all but addresses are ints or flags below 2**32. Both machines: little-endian."""
    return _instruction(_LOAD, _ARGUMENTS_AT + 8 * argument)


def _load_upper(argument: int) -> bytes:
    return _instruction(_LOAD, _ARGUMENTS_AT + 8 * argument + 4)


def _give(code: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | code)


def _instruction(code: int, operand: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("HBBI", code, then, otherwise, operand)
