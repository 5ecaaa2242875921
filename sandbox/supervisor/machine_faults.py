"""Whether the machine caused a failed build or run: by the compilers' output, the disk and the process table.

The output comes from an untrusted process and proves nothing, so `machine_line` costs its job at most a retry. This
module reads the disk and the process table itself.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from domain.fault import DRIVER_FAILED

LEAST_FREE_BYTES = 16 << 20
"""Minimum free space of a volume that is not full, in bytes: an object file of an extension takes 1 to 20 MiB."""
FILLED_BYTES = 1 << 30
"""A submission with more bytes in its folder has filled the volume itself; an extension's build takes some 100 MiB."""
FULL_TABLE = 0.95

_FATAL = r"(?:-9|-15|137|143)"
_SPACE = r"No space left on device|Disk quota exceeded|Input/output error"
_MEMORY = (
    r"Cannot allocate memory|out of memory allocating|virtual memory exhausted|memory exhausted|std::bad_alloc"
    r"|LLVM ERROR: out of memory"
)
_ENDED = (
    r"(?:Killed|Terminated) signal terminated program|terminated with signal (?:9|15)\b|died due to signal (?:9|15)\b"
    rf"|was killed by signal (?:9|15)\b|unable to execute command: (?:Killed|Terminated)|^FAILED: \[code={_FATAL}\]"
    r"|^(?:\S*sh: .*)?\b(?:Killed|Terminated)\b(?!:)"
    rf"|^{DRIVER_FAILED}: "
)
_MACHINE = re.compile(f"{_ENDED}|{_SPACE}|{_MEMORY}")
_MACHINE_EXCEPTION = re.compile(
    r"^[\w.]*Error: \[Errno (?:5|28|122)\] "
    r"|CalledProcessError: .* died with <Signals\.SIG(?:KILL|TERM): "
    rf"|CalledProcessError: .* returned non-zero exit status {_FATAL}\b"
    rf"|`ptxas` failed with error code {_FATAL}\b"
)
_EXCEPTION = re.compile(r"[\w.]*(?:Error|Exception|Exit|Interrupt|Warning|Fault)\b: ")
_BUILD = re.compile(r"^RuntimeError: Error building extension '[^']*': ")
_OF_A_SOURCE = re.compile(r"\s|\||In file included|[^:\s][^:]*:\d+(?::\d+)?: |[^(]+\(\d+\): ")
"""Lines that quote a source or report about one of its lines: a source may contain any words."""
_UNDEFINED = "undefined reference"

_PROCESSES = re.compile(r"can't start new thread|Resource temporarily unavailable|[Cc]annot fork")


def machine_line(text: str) -> str | None:
    """The first line in which a compiler or the system says that the machine stopped it; None without one.

    It ignores lines about the source's own lines, and messages of other exceptions.
    """
    for line in text.splitlines():
        line = _BUILD.sub("", line)
        if _EXCEPTION.match(line):
            if _MACHINE_EXCEPTION.search(line):
                return line
        elif not _OF_A_SOURCE.match(line) and _UNDEFINED not in line and _MACHINE.search(line):
            return line
    return None


def is_full(folder: Path) -> bool:
    """Whether the folder's volume has no room for a build, in bytes or in files."""
    try:
        volume = os.statvfs(folder)
    except OSError:
        return False
    return volume.f_bavail * volume.f_frsize < LEAST_FREE_BYTES or (volume.f_files > 0 and volume.f_favail == 0)


def lacks_processes(text: str) -> bool:
    """Whether the text says that no process or thread could start, and the machine really has none left."""
    if not _PROCESSES.search(text):
        return False
    try:
        tasks = int(Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return False
    limits = [_number(f"/proc/sys/kernel/{name}") for name in ("threads-max", "pid_max")]
    used, most = _number("/sys/fs/cgroup/pids.current"), _number("/sys/fs/cgroup/pids.max")
    of_group = used is not None and most is not None and used >= FULL_TABLE * most
    return of_group or any(limit is not None and tasks >= FULL_TABLE * limit for limit in limits)


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):  # "max", or no such file.
        return None
