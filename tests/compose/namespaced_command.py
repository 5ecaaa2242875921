"""A command in mount and process namespaces of its own: nothing that it starts, mounts or changes outlives it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

# Killed with the process that starts it, and what it starts with it.
UNSHARE = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
HIDDEN = (Path("/run/containerd"), Path("/run/docker"), Path("/etc/docker"))
"""Folders whose paths an engine does not let us choose. The command mounts memory of its own over them."""
STOP_S = 90.0
BRIDGES = Path("/sys/class/net")
FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
EMPTY = {
    "filter": "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n",
    "nat": "*nat\n:PREROUTING ACCEPT\n:INPUT ACCEPT\n:OUTPUT ACCEPT\n:POSTROUTING ACCEPT\nCOMMIT\n",
}
"""Tables that iptables-save omits when they have never been used."""


class TimeLimit(Exception):
    """The command was ended because it ran longer than its limit."""


def run(command: Sequence[str], limit_s: float, stop_s: float = STOP_S) -> int:
    """The command's exit status; raises TimeLimit.

    Where it exceeds `limit_s` it is sent SIGTERM, and killed with all that it started after `stop_s` more.
    """
    for folder in HIDDEN:
        # Not removed afterwards: whoever removes a folder takes away what other namespaces have mounted there.
        folder.mkdir(exist_ok=True)
    with _restored_network():
        # Its own session, so that Ctrl-C reaches this process alone, which then ends the command in order.
        process = subprocess.Popen([*UNSHARE, *command], stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise TimeLimit(f"not finished after {limit_s:.0f} s") from None
        finally:
            _end(process, stop_s)


def hide_folders() -> None:
    """Called by the command itself, in its mount namespace; raises subprocess.CalledProcessError."""
    for folder in HIDDEN:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], check=True)


def _end(process: subprocess.Popen[bytes], stop_s: float) -> None:
    """SIGTERM for the command, so that it can clean up; then the kernel kills all that is left in its namespace."""
    if process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            # `unshare` itself ignores SIGTERM while it waits.
            for child in psutil.Process(process.pid).children():
                child.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(stop_s)
    process.kill()
    process.wait()


def remove_cgroups(name: str) -> None:
    """The groups of that name, of every controller, and those below them. Processes are in none of them any more."""
    roots = [path for pattern in (name, f"*/{name}") for path in Path("/sys/fs/cgroup").glob(pattern)]
    for root in roots:
        folders = [path for path in root.rglob("*") if path.is_dir()]
        for folder in [*sorted(folders, reverse=True), root]:
            with suppress(FileNotFoundError):  # Two controllers may be one folder with two names.
                folder.rmdir()


def _bridges() -> set[str]:
    return {path.name for path in BRIDGES.glob("br-*") if re.fullmatch(r"br-[0-9a-f]{12}", path.name)}


@contextmanager
def _restored_network() -> Iterator[None]:
    """Packet filter, forwarding and bridges are afterwards as they were.

    Where another engine runs they stay as they are then: its own changes of the meantime would be lost.
    """
    another = any(process.info["name"] == "dockerd" for process in psutil.process_iter(["name"]))
    forward, bridges = FORWARD.read_text(), _bridges()
    rules = {tool: _saved(tool) for tool in ("iptables", "ip6tables")}
    try:
        yield
    finally:
        if not another:
            for bridge in _bridges() - bridges:
                subprocess.run(["ip", "link", "delete", bridge], check=True)
            for tool, saved in rules.items():
                if saved is not None and _saved(tool) != saved:
                    subprocess.run([f"{tool}-restore"], input=saved, text=True, check=True)
            if FORWARD.read_text() != forward:
                FORWARD.write_text(forward)


def _saved(tool: str) -> str | None:
    """The rules of every table; None where this machine has no such packet filter."""
    if shutil.which(f"{tool}-save") is None:
        return None
    done = subprocess.run([f"{tool}-save"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    rules = re.sub(r"^#.*\n|\[\d+:\d+\]", "", done.stdout, flags=re.MULTILINE)  # Neither dates nor counted packets.
    return "".join(text for table, text in EMPTY.items() if f"*{table}\n" not in rules) + rules
