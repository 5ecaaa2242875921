"""The processes of a stranger: who they are, and how all of them are ended."""

from __future__ import annotations

import contextlib
import os
import signal


def children(pid: int) -> set[int]:
    """Of all its threads."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as each:
                found.update(map(int, each.read().split()))
    return found


def family(pid: int) -> set[int]:
    """A process and everything it has started that has not left for another parent."""
    found = {pid}
    waiting = [pid]
    while waiting:
        new = children(waiting.pop()) - found
        found |= new
        waiting += new
    return found


def threads(pid: int) -> int:
    """How many it has."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def end_all_of(user: int) -> None:
    """Kills every process of that user at once, from one that becomes that user to do it. Needs to be root.

    No other way is sure to end those that start new ones all the time.
    """
    helper = os.fork()
    if helper:
        os.waitpid(helper, 0)
        return
    try:
        os.setresuid(user, user, user)
        os.kill(-1, signal.SIGKILL)  # Everybody that this user may signal but the caller, in one go.
    finally:
        os._exit(0)
