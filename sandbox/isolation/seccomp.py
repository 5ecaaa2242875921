"""The seccomp filter of an untrusted process: assembles it here and installs it by prctl.

A refused call fails with EPERM, so that non-adversarial code gets an error it can report. It fails with ENOSYS where
such code then has another way. A call by another architecture's table (i386, x32) ends the process, because there the
numbers have other meanings.
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
_SIBLING = 0x8000  # CLONE_PARENT: the child would be the zygote's, outside of the runner's process tree
_THREAD, _SAME_FILES = 0x10000, 0x400  # CLONE_THREAD, CLONE_FILES
_OWN_FILES = 2  # CLOSE_RANGE_UNSHARE: descriptors where the referee does not look, as with a thread without CLONE_FILES
_PERSONALITIES = (0, 0xFFFFFFFF)  # the default, and the query for the current one
_SET_OWNER, _IOCTL_SET_OWNER = (8, 15), (0x8901, 0x8902)  # the recipient of a descriptor's signals
_OF_PROCESSES = {
    **{"prlimit64": 0, "sched_setaffinity": 0, "sched_setattr": 0, "sched_setparam": 0, "sched_setscheduler": 0},
    **{"setpriority": 1, "ioprio_set": 1},
}
"""Index of the argument that names the process to change."""

_SIGNALS_BY_PID = {"kill": 1, "tgkill": 2, "tkill": 1, "rt_sigqueueinfo": 1, "rt_tgsigqueueinfo": 2}
"""Calls whose first argument is the recipient, and the index of the argument with the signal."""
_SET_SIGNAL, _EXIT_SIGNAL = 10, 0xFF  # the signal of a descriptor; the exit signal among clone's flags
_NOBODYS = (signal.SIGKILL, signal.SIGCONT)
"""Signals that a submission may not have sent for it. SIGCONT would continue a process that the referee has frozen.

inotify on a file in /proc could trigger it through a descriptor's signal, whenever another process looks at that file.
"""
_TIME_LIMITS = (0, 15)  # RLIMIT_CPU and RLIMIT_RTTIME kill a process that exceeds them
_ALL_BITS = 0xFFFFFFFF

REFUSED = (
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),  # its operations bypass the filter
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
    "timer_create",  # its signal is given in memory, so it could be SIGKILL; setitimer sends SIGALRM
    # Memory and queues that outlive their creator; a number is enough to use existing ones.
    *("shmget", "shmat", "shmctl", "msgget", "msgsnd", "msgrcv", "msgctl"),
    *("semget", "semop", "semtimedop", "semctl"),
    *("mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify", "mq_getsetattr"),
)

ABSENT = (
    # Its flags are in memory; libc falls back to clone.
    "clone3",
    "openat2",  # The mode of a new file is in memory; libc does not use it.
    # Asynchronous reads: an exiting process waits in the kernel until they finish, for an unlimited time.
    *("io_setup", "io_submit", "io_getevents", "io_pgetevents", "io_cancel", "io_destroy"),
)
"""Fail with ENOSYS, as on a kernel without them: other code then takes another way."""

FILE_METADATA_CALLS = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchown", "fchownat"),
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
    *("removexattr", "lremovexattr", "fremovexattr", "removexattrat", "file_setattr"),
)
"""Calls that Landlock does not cover: refused where the submission shares the worker's user.

Some of them need only a descriptor for reading, and Landlock lets the submission open whatever is readable.
"""

_FILE_SYSTEMS_IOCTLS = tuple(kind << 8 for kind in (0x58, 0x66, 0x76, 0x94, 0xF5))
"""Second byte of file systems' ioctl requests: XFS and freezing, ext4 and flags, versions, btrfs, f2fs.

With a descriptor for reading, a file's owner may set flags (chattr), seal a file (fs-verity) or close a subvolume.
"""
_KIND_OF_IOCTL = 0xFF00

_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
"""Index of the argument with a file's mode. mkdir ignores these bits of its mode."""
_MODES_OF_OPENED = {"open": (1, 2), "openat": (2, 3)}
"""Indexes of the flags and of the mode, which counts only with O_CREAT or O_TMPFILE."""
_LENDS_RIGHTS = stat.S_ISUID | stat.S_ISGID
_CREATES = os.O_CREAT | (os.O_TMPFILE & ~os.O_DIRECTORY)

_LEASES = (1024, 1040)
"""F_SETLEASE and F_SETDELEG of fcntl: a lease delays another process that opens the file by up to 45 seconds."""


def available() -> str | None:
    """Why this kernel does not take the filter; None if it does."""
    if MACHINE not in _ARCHITECTURES:
        return f"no table of system calls for {MACHINE}"
    try:
        call("seccomp", _GET_ACTION_AVAIL, 0, ctypes.byref(ctypes.c_uint32(_KILL)))
    except OSError as error:
        return f"the kernel has none ({error.strerror})"
    return None


@cache
def rules(*, own_user: bool, truncation_elsewhere: bool) -> bytes:
    """The filter without its end; the first call takes half a millisecond.

    Without a user of its own, the submission may not change a file's mode, owner or attributes. With one, it may not
    make files setuid or setgid. `truncation_elsewhere` says that Landlock (ABI 3) prevents truncation.
    """
    program = _entrance() + b"".join(_rule(name, [_fail(errno.EPERM)]) for name in REFUSED)
    program += b"".join(_rule(name, [_fail(errno.ENOSYS)]) for name in ABSENT)
    exit_signal = [_load(0), _instruction(_AND, _EXIT_SIGNAL)]
    program += _rule(
        "clone",
        [
            *_guard(([_load(0)], _IF_ANY_BIT, [_NEW_NAMESPACES | _SIBLING])),
            *_guard((exit_signal, _IF_EQUAL, _NOBODYS)),
            *_guard(([_load(0), _instruction(_AND, _THREAD | _SAME_FILES)], _IF_EQUAL, [_THREAD])),
            _instruction(_RETURN, _ALLOW),
        ],
    )
    program += _rule("close_range", [*_guard(([_load(2)], _IF_ANY_BIT, [_OWN_FILES])), _instruction(_RETURN, _ALLOW)])
    program += _rule("setrlimit", _unless(0, _TIME_LIMITS))
    for name in ("socket", "socketpair"):
        program += _rule(name, _only(0, [_AF_UNIX]) if own_user else _unix_stream())
    program += _rule("personality", _only(0, _PERSONALITIES))
    # A parent-death signal could be SIGCONT to a frozen process. The call pretends to succeed: torch.multiprocessing
    # makes it in every process that it starts, and gives up if it fails.
    parents_end = [_load(0), _instruction(_IF_EQUAL, PR_SET_PDEATHSIG, 0, 1), _fail(0)]
    program += _rule("prctl", parents_end + _unless(0, [_PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER]))
    if not own_user:
        # Before the rules by mode: the first of two rules for one call counts.
        program += b"".join(_rule(name, [_fail(errno.EPERM)]) for name in FILE_METADATA_CALLS)
        # Landlock does not cover sockets in the file system, and those of the worker's user are open to it. The error
        # is that of a socket without listener. Datagrams need no connection and are refused elsewhere.
        program += _rule("connect", [_fail(errno.ECONNREFUSED)])
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
        program += _rule("truncate", [_fail(errno.EPERM)])
    return program + lends


def install(filter_rules: bytes, *, own_user: bool, signals_elsewhere: bool) -> None:
    """Installs the filter for this thread and its children. Needs no_new_privs. Raises OSError.

    Without a user of its own, the process may change limits, priority and processors only of itself. Without
    `signals_elsewhere` (its own user, or Landlock from ABI 6 on), it may also signal only itself.

    The process cannot kill itself with SIGKILL, and its children cannot kill it. A SIGKILL therefore comes from
    elsewhere. Its children may be killed. docs/security.md lists ways that a filter does not see.
    """
    program = filter_rules
    itself, allow = [os.getpid(), 0], [_instruction(_RETURN, _ALLOW)]
    for name, place in _OF_PROCESSES.items():
        before = _no_time_limit(1, 2) if name == "prlimit64" else []
        if before or not own_user:
            program += _rule(name, before + (allow if own_user else _only(place, itself)))
    # Its group has its pid as number, 0 is the caller's group, and -1 is every process.
    with_it = [*itself, -1, -os.getpid()]
    for name, place in _SIGNALS_BY_PID.items():
        deadly = ([_load(place)], _IF_EQUAL, [signal.SIGKILL])
        # Thread ids cannot be known beforehand, so other code never signals by them.
        before = _guard(deadly, ([_load(0)], _IF_EQUAL, with_it)) if name == "kill" else _guard(deadly)
        program += _rule(name, before + (allow if signals_elsewhere else _only(0, itself)))
    by_descriptor = _unless(1, [signal.SIGKILL]) if signals_elsewhere else [_fail(errno.EPERM)]
    program += _rule("pidfd_send_signal", by_descriptor)
    before = _guard(([_load(1)], _IF_EQUAL, [_SET_SIGNAL]), ([_load(2)], _IF_EQUAL, _NOBODYS))
    before += _guard(([_load(1)], _IF_EQUAL, _LEASES))
    program += _rule("fcntl", before + (allow if signals_elsewhere else _unless(1, _SET_OWNER)))
    of_file_systems = ([_load(1), _instruction(_AND, _KIND_OF_IOCTL)], _IF_EQUAL, _FILE_SYSTEMS_IOCTLS)
    # The error of a file system that has none of them.
    before = [] if own_user else _guard(of_file_systems, code=errno.ENOTTY)
    if before or not signals_elsewhere:
        program += _rule("ioctl", before + (allow if signals_elsewhere else _unless(1, _IOCTL_SET_OWNER)))
    program += _instruction(_RETURN, _ALLOW)
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code)))
    prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(header))


def _entrance() -> bytes:
    """Ends a process of another architecture; leaves the call's number loaded."""
    start = _instruction(_LOAD, _ARCHITECTURE_AT)
    start += _instruction(_IF_EQUAL, _ARCHITECTURES[MACHINE], 1, 0) + _instruction(_RETURN, _KILL)
    start += _instruction(_LOAD, _NUMBER_AT)
    if MACHINE == "x86_64":
        start += _instruction(_IF_AT_LEAST, _X32, 0, 1) + _instruction(_RETURN, _KILL)
    return start


def _rule(name: str, body: list[bytes]) -> bytes:
    """`body`, which ends in a return, for that call; nothing if this machine has no such call."""
    here = number(name)
    return b"" if here is None else _instruction(_IF_EQUAL, here, 0, len(body)) + b"".join(body)


def _only(argument: int, values: Iterable[int]) -> list[bytes]:
    operands = list(values)
    tests = [_instruction(_IF_EQUAL, value, len(operands) - place, 0) for place, value in enumerate(operands)]
    return [_load(argument), *tests, _fail(errno.EPERM), _instruction(_RETURN, _ALLOW)]


def _unless(argument: int, values: Iterable[int]) -> list[bytes]:
    return [*_guard(([_load(argument)], _IF_EQUAL, list(values))), _instruction(_RETURN, _ALLOW)]


Condition = tuple[list[bytes], int, Sequence[int]]
"""Instructions that load a word, a test, and values of which one must pass."""


def _guard(*conditions: Condition, code: int = errno.EPERM) -> list[bytes]:
    """Refuses if all conditions hold; otherwise continues with the next instruction."""
    program = [_fail(code)]
    for load, test, values in reversed(conditions):
        last = len(values) - 1
        tests = [
            _instruction(test, value & _ALL_BITS, last - place, len(program) if place == last else 0)
            for place, value in enumerate(values)
        ]
        program = [*load, *tests, *program]
    return program


def _no_time_limit(resource: int, new: int) -> list[bytes]:
    """Refuses to set a time limit; `new` is an address, 0 to query the limit."""
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
        _fail(errno.EPERM),
        _instruction(_RETURN, _ALLOW),
    ]


def _no_truncation(flags: int) -> list[bytes]:
    """Refuses O_TRUNC on a file opened for reading; Landlock covers files opened for writing."""
    return [
        _load(flags),
        _instruction(_IF_ANY_BIT, os.O_TRUNC, 0, 2),
        _instruction(_IF_ANY_BIT, os.O_WRONLY | os.O_RDWR, 1, 0),
        _fail(errno.EPERM),
    ]


def _load(argument: int) -> bytes:
    """Loads the lower half of an argument: all but addresses are below 2**32, and both machines are little-endian."""
    return _instruction(_LOAD, _ARGUMENTS_AT + 8 * argument)


def _load_upper(argument: int) -> bytes:
    return _instruction(_LOAD, _ARGUMENTS_AT + 8 * argument + 4)


def _fail(code: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | code)


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, operand)
