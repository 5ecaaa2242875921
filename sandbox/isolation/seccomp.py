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
from functools import cache

from sandbox.isolation.rlimits import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG
from sandbox.isolation.seccomp_program import (
    ALL_BITS,
    ALLOW,
    AND,
    ARCHITECTURES,
    IF_ANY_BIT,
    IF_EQUAL,
    KILL,
    PR_SET_SECCOMP,
    RETURN,
    entrance,
    fail,
    guard,
    install_program,
    instruction,
    load,
    load_upper,
    only,
    rule,
    unless,
)
from sandbox.isolation.syscalls import MACHINE, call

_GET_ACTION_AVAIL = 2
_AF_UNIX, _DATAGRAM, _TYPE_OF_SOCKET = 1, 2, 0xF
NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
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
    *("uselib", "_sysctl"),
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
    if MACHINE not in ARCHITECTURES:
        return f"no table of system calls for {MACHINE}"
    try:
        call("seccomp", _GET_ACTION_AVAIL, 0, ctypes.byref(ctypes.c_uint32(KILL)))
    except OSError as error:
        return f"the kernel has none ({error.strerror})"
    return None


@cache
def rules(*, own_user: bool, truncation_elsewhere: bool) -> bytes:
    """The filter without its end; the first call takes half a millisecond.

    Without a user of its own, the submission may not change a file's mode, owner or attributes. With one, it may not
    make files setuid or setgid. `truncation_elsewhere` says that Landlock (ABI 3) prevents truncation.
    """
    program = entrance() + b"".join(rule(name, [fail(errno.EPERM)]) for name in REFUSED)
    program += b"".join(rule(name, [fail(errno.ENOSYS)]) for name in ABSENT)
    exit_signal = [load(0), instruction(AND, _EXIT_SIGNAL)]
    program += rule(
        "clone",
        [
            *guard(([load(0)], IF_ANY_BIT, [NEW_NAMESPACES | _SIBLING])),
            *guard((exit_signal, IF_EQUAL, _NOBODYS)),
            *guard(([load(0), instruction(AND, _THREAD | _SAME_FILES)], IF_EQUAL, [_THREAD])),
            instruction(RETURN, ALLOW),
        ],
    )
    program += rule("close_range", [*guard(([load(2)], IF_ANY_BIT, [_OWN_FILES])), instruction(RETURN, ALLOW)])
    program += rule("setrlimit", unless(0, _TIME_LIMITS))
    for name in ("socket", "socketpair"):
        program += rule(name, only(0, [_AF_UNIX]) if own_user else _unix_stream())
    program += rule("personality", only(0, _PERSONALITIES))
    # A parent-death signal could be SIGCONT to a frozen process. The call pretends to succeed: torch.multiprocessing
    # makes it in every process that it starts, and gives up if it fails.
    parents_end = [load(0), instruction(IF_EQUAL, PR_SET_PDEATHSIG, 0, 1), fail(0)]
    program += rule("prctl", parents_end + unless(0, [PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER]))
    if not own_user:
        # Before the rules by mode: the first of two rules for one call counts.
        program += b"".join(rule(name, [fail(errno.EPERM)]) for name in FILE_METADATA_CALLS)
        # Landlock does not cover sockets in the file system, and those of the worker's user are open to it. The error
        # is that of a socket without listener. Datagrams need no connection and are refused elsewhere.
        program += rule("connect", [fail(errno.ECONNREFUSED)])
    lends = b"".join(
        rule(name, [*guard(([load(place)], IF_ANY_BIT, [_LENDS_RIGHTS])), instruction(RETURN, ALLOW)])
        for name, place in _MODES.items()
    )
    for name, (flags, mode) in _MODES_OF_OPENED.items():
        creates = ([load(flags)], IF_ANY_BIT, [_CREATES])
        before = guard(creates, ([load(mode)], IF_ANY_BIT, [_LENDS_RIGHTS]))
        before += [] if truncation_elsewhere else _no_truncation(flags)
        lends += rule(name, [*before, instruction(RETURN, ALLOW)])
    if not truncation_elsewhere:
        program += rule("truncate", [fail(errno.EPERM)])
    return program + lends


def install(filter_rules: bytes, *, own_user: bool, signals_elsewhere: bool) -> None:
    """Installs the filter for this thread and its children. Needs no_new_privs. Raises OSError.

    Without a user of its own, the process may change limits, priority and processors only of itself. Without
    `signals_elsewhere` (its own user, or Landlock from ABI 6 on), it may also signal only itself.

    The process cannot kill itself with SIGKILL, and its children cannot kill it. A SIGKILL therefore comes from
    elsewhere. Its children may be killed. docs/security.md lists ways that a filter does not see.
    """
    program = filter_rules
    itself, allow = [os.getpid(), 0], [instruction(RETURN, ALLOW)]
    for name, place in _OF_PROCESSES.items():
        before = _no_time_limit(1, 2) if name == "prlimit64" else []
        if before or not own_user:
            program += rule(name, before + (allow if own_user else only(place, itself)))
    # Its group has its pid as number, 0 is the caller's group, and -1 is every process.
    with_it = [*itself, -1, -os.getpid()]
    for name, place in _SIGNALS_BY_PID.items():
        deadly = ([load(place)], IF_EQUAL, [signal.SIGKILL])
        # Thread ids cannot be known beforehand, so other code never signals by them.
        before = guard(deadly, ([load(0)], IF_EQUAL, with_it)) if name == "kill" else guard(deadly)
        program += rule(name, before + (allow if signals_elsewhere else only(0, itself)))
    by_descriptor = unless(1, [signal.SIGKILL]) if signals_elsewhere else [fail(errno.EPERM)]
    program += rule("pidfd_send_signal", by_descriptor)
    before = guard(([load(1)], IF_EQUAL, [_SET_SIGNAL]), ([load(2)], IF_EQUAL, _NOBODYS))
    before += guard(([load(1)], IF_EQUAL, _LEASES))
    program += rule("fcntl", before + (allow if signals_elsewhere else unless(1, _SET_OWNER)))
    of_file_systems = ([load(1), instruction(AND, _KIND_OF_IOCTL)], IF_EQUAL, _FILE_SYSTEMS_IOCTLS)
    # The error of a file system that has none of them.
    before = [] if own_user else guard(of_file_systems, code=errno.ENOTTY)
    if before or not signals_elsewhere:
        program += rule("ioctl", before + (allow if signals_elsewhere else unless(1, _IOCTL_SET_OWNER)))
    install_program(program)


def _no_time_limit(resource: int, new: int) -> list[bytes]:
    """Refuses to set a time limit; `new` is an address, 0 to query the limit."""
    of_time = ([load(resource)], IF_EQUAL, _TIME_LIMITS)
    words = (load(new), load_upper(new))
    return [each for word in words for each in guard(of_time, ([word], IF_ANY_BIT, [ALL_BITS]))]


def _unix_stream() -> list[bytes]:
    return [
        load(0),
        instruction(IF_EQUAL, _AF_UNIX, 0, 3),
        load(1),
        instruction(AND, _TYPE_OF_SOCKET),
        instruction(IF_EQUAL, _DATAGRAM, 0, 1),
        fail(errno.EPERM),
        instruction(RETURN, ALLOW),
    ]


def _no_truncation(flags: int) -> list[bytes]:
    """Refuses O_TRUNC on a file opened for reading; Landlock covers files opened for writing."""
    return [
        load(flags),
        instruction(IF_ANY_BIT, os.O_TRUNC, 0, 2),
        instruction(IF_ANY_BIT, os.O_WRONLY | os.O_RDWR, 1, 0),
        fail(errno.EPERM),
    ]
