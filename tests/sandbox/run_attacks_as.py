"""Runs every attack in a runner of its own, below a launcher that is root or an ordinary user: `python -m` with which.

`container` is root with the capabilities that Docker leaves it. With `tool`, below root, each is a program of its own
instead, as a profiler would start it. `without floods` behind it leaves out what goes for the limits.

It works in a folder of its own below ASSAULT_FOLDER, /var/tmp by itself.

A program of its own, since who gives up being root cannot take it back. Prints one JSON object on one line.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from backends.base import Target
from domain.fault import KernelFault
from domain.kernel import Kernel, KernelType
from domain.paths import ROOT
from sandbox.isolation import file_access, scratch_dir, uid
from sandbox.isolation.process_tree import children
from sandbox.supervisor.runner_process import RunnerProcess
from sandbox.supervisor.session import Session
from sandbox.supervisor.zygote_client import Zygote
from tests.sandbox.allowed_operations import honest
from tests.sandbox.attacks import Attack, attacks
from tests.sandbox.container import DOCKERS_CAPABILITIES
from tests.sandbox.system_v import SystemV

SECRET = "a-secret-that-nobody-may-read"
ORDINARY_USER = 54_321
MEMORY_LIMIT = 512 << 20
DEADLINE_S = 40.0
GET_FLAGS = 0x80086601
"""FS_IOC_GETFLAGS, which chattr changes."""
SIBLING = """
import contextlib
with contextlib.suppress(OSError), open("/dev/shm/sibling-{mark}", "w") as file:
    file.write("{secret}")

def kernel_fn(x):
    return x
"""

Ends = dict[str, dict[str, Any]]


class Host:
    """What there is to get at: files, sockets, processes; `facts` names them to the attacks."""

    def __init__(self, base: Path, *, programs: bool) -> None:
        self.base = base
        self._programs = programs
        self.signals: list[int] = []
        signal.signal(signal.SIGURG, lambda number, _: self.signals.append(number))
        self.work = base / "work"
        self.work.mkdir(mode=0o711)
        (base / "secret").write_text(SECRET)
        self.tool = base / "tools" / "tool"
        """Of the worker's user, and readable to all."""
        self.tool.parent.mkdir(mode=0o755)
        self.tool.write_text(SECRET)
        self.tool.chmod(0o644)
        os.setxattr(self.tool, "user.kept", b"1")
        self._tool_as_it_was = self._look_at_tool()
        self.zygote = Zygote(self.work, arch=None, memory_limit=MEMORY_LIMIT, tools=[self.tool.parent])
        other = self.zygote.private_folder(self.work / "other")
        (other / "secret").write_text(SECRET)
        self.mark = f"assault-{os.getpid()}"
        """In the name of everything that is made in the common /dev/shm and /tmp."""
        self.left_in_sysv = SystemV()
        sibling = Session(self.runner(other), Target("cpu", None), 1 << 20)
        sibling.build(Kernel(SIBLING.format(mark=self.mark, secret=SECRET), KernelType.TORCH))
        self.sibling = sibling.runner
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._abstract = socket.socket(socket.AF_UNIX)
        abstract = f"abstract-{os.getpid()}"
        self._abstract.bind(f"\0{abstract}")
        self._in_folder = socket.socket(socket.AF_UNIX)
        self._in_folder.bind(str(base / "socket"))
        for listener in (self._abstract, self._in_folder):
            listener.listen()
        (base / "socket").chmod(0o600)
        self.shared = Path("/dev/shm", f"secret-{self.mark}")
        self.shared.write_text(SECRET)
        self.shared.chmod(0o600)
        self.temporary = Path("/tmp", f"secret-{self.mark}")
        self.temporary.write_text(SECRET)
        self.facts = {
            **{"SECRET": SECRET, "REFEREE": os.getpid(), "ZYGOTE": os.getpid(), "SIBLING": self.sibling.pid},
            **{"OTHER_FOLDER": str(other), "STATE": str(base), "ROOT": str(ROOT), "SHARED": self.shared.name},
            **{"PORT": self._listener.getsockname()[1], "ABSTRACT": abstract, "MARK": self.mark},
            "TOOL": str(self.tool),
            **self.left_in_sysv.ids,
        }
        self.facts["ZYGOTE"] = self.zygote.pid

    def runner(self, folder: Path, *command: str) -> RunnerProcess:
        return self.zygote.runner(
            folder, gpu=False, deadline=time.monotonic() + DEADLINE_S, cancelled=lambda: False, command=command
        )

    def suffer(self, attack: Attack, number: int) -> dict[str, Any]:
        """How it ended, what it printed, and what it left."""
        folder = self.zygote.private_folder(self.work / f"job-{number}")
        told = "".join(f"{name} = {value!r}\n" for name, value in self.facts.items())
        command = (sys.executable, "-c", told + attack.source) if self._programs else ()
        session = Session(self.runner(folder, *command), Target("cpu", None), 1 << 20)
        started = time.monotonic()
        status, message = "passed", ""
        try:
            if command:
                session.runner.close_and_wait()
                status = "passed" if session.runner.kill() == 0 else "crashed"
            else:
                session.build(Kernel(told + attack.source, KernelType.TORCH))
        except KernelFault as fault:
            status, message = fault.status.value, fault.message
        finally:
            session.close()
        output, seconds = session.runner.output.text(), time.monotonic() - started
        end = {"status": status, "message": message, "output": output, "seconds": seconds}
        scratch_dir.remove(folder)
        return end | {"left": self.left(), "folder_left": folder.exists()}

    def left(self) -> list[int]:
        """Processes below the zygote that are no runners of ours."""
        return sorted(children(self.zygote.pid) - {self.sibling.pid})

    def unharmed(self) -> dict[str, bool]:
        """Whether all of it is as it was."""
        return {
            "zygote": self.zygote.alive,
            "no signal came": not self.signals,
            "sibling": self.sibling.alive,
            "secret": (self.base / "secret").read_text() == SECRET and (self.base / "secret").stat().st_size > 0,
            "tool": self._look_at_tool() == self._tool_as_it_was,
            "nothing planted": {path.name for path in self.base.iterdir()} == {"work", "secret", "socket", "tools"},
            "no folder left": {path.name for path in self.work.iterdir() if path.name[0] != "."} == {"other"},
            "shared memory": self.shared.read_text() == SECRET,
            "temporary file": self.temporary.read_text() == SECRET,
            "nothing planted beside it": list(self.temporary.parent.glob(f"*{self.mark}*")) == [self.temporary],
            "nothing left in shared memory": self._in_shared_memory() <= {self.shared.name, f"sibling-{self.mark}"},
            "memory and queues of System V": self.left_in_sysv.unharmed(),
        }

    def _look_at_tool(self) -> list[object]:
        """All that may be changed of a file or folder without opening it for writing, but for its times."""
        seen: list[object] = []
        for place in (self.tool, self.tool.parent):
            found = place.stat()
            opened = os.open(place, os.O_RDONLY)
            flags = fcntl.ioctl(opened, GET_FLAGS, bytes(8))
            os.close(opened)
            seen += [found.st_mode, found.st_uid, found.st_gid, sorted(os.listxattr(place)), flags]
        return [*seen, self.tool.read_text()]

    def _in_shared_memory(self) -> set[str]:
        """What of this assault is there. Others use it too."""
        return {path.name for path in self.shared.parent.iterdir() if self.mark in path.name}

    def close(self) -> None:
        self.sibling.close()
        self.zygote.close()
        self.left_in_sysv.close()
        for name in self._in_shared_memory():
            self.shared.with_name(name).unlink()
        for planted in self.temporary.parent.glob(f"*{self.mark}*"):
            planted.unlink()
        for listener in (self._listener, self._abstract, self._in_folder):
            listener.close()


def main() -> None:
    os.environ["A_SECRET"] = SECRET
    # Small enough to be reached within a second.
    scratch_dir.MAX_BYTES, scratch_dir.MAX_ENTRIES = 128 << 20, 2_000
    # Where /tmp can be the submissions' own: below it they would need their folders.
    base = Path(tempfile.mkdtemp(prefix="assault-", dir=os.environ.get("ASSAULT_FOLDER", "/var/tmp")))
    base.chmod(0o711)
    if sys.argv[1] == "user":
        os.chown(base, ORDINARY_USER, ORDINARY_USER)
        # The capability is for an interpreter in root's home; the sandbox has to bound that as well.
        closed = file_access.out_of_reach(base) is not None
        uid.become(ORDINARY_USER, search_everywhere=closed and uid.searches_everywhere())
    if sys.argv[1] == "container":
        uid.keep_only(DOCKERS_CAPABILITIES)
    host = Host(base, programs=sys.argv[1] == "tool")
    try:
        made = [attack for attack in attacks() if sys.argv[2:] != ["without floods"] or not attack.floods]
        ends: Ends = {attack.name: host.suffer(attack, number) for number, attack in enumerate(made)}
        lived: Ends = {one.name: host.suffer(one, number) for number, one in enumerate(honest())}
        unharmed = host.unharmed()
    finally:
        host.close()
        with contextlib.suppress(OSError):
            scratch_dir.remove(base)
    print(json.dumps({"ends": ends, "honest": lived, "unharmed": unharmed, "user": os.geteuid()}))


if __name__ == "__main__":
    main()
