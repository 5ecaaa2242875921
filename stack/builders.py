"""`python -m stack.builders`: only the build workers of this machine, as a container runs them. They need no GPU.

Redis, the API and the judging workers run elsewhere. Imports nothing of the API: the workers' image has no web
framework.
"""

from __future__ import annotations

import sys
from pathlib import Path

from domain.settings import Settings
from stack import container, processes
from tasks.fleet.prebuilder_registry import builders
from tasks.node.redis_client import connect


def run(own: Settings) -> int:
    """Keeps the builders running until a signal asks them to stop; returns the exit status."""
    if not own.shared_builds:
        print("there is nowhere to put builds: set SHARED_BUILDS_MIB, here and for the workers", file=sys.stderr)
        return container.MALFORMED
    return container.keep_running(own, lambda temporary: processes.builders(own, temporary))


def check(own: Settings) -> int:
    """Returns 0 if every builder of this machine has sent a heartbeat lately."""
    return container.check(processes.builders(own, Path()), lambda: [each.name for each in builders(connect())])


if __name__ == "__main__":
    sys.exit(container.command("stack.builders", __doc__, run, check))
