"""Runs a runner beneath a tool (profiler, sanitizer): both are confined together, as one submission.

The tool starts the runner as a program, so the runner is not forked from a zygote and imports everything again.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import NoReturn

from domain.paths import ROOT
from sandbox.isolation.file_access import OUR_CODE

CONVERSATION = 0
"""The one descriptor that every tool passes on."""
RUNNER = (sys.executable, "-P", "-m", "sandbox.runner.tool_entry")
"""The command with which a tool starts the runner."""
NOT_STARTED = 127
PROJECT = "project"
"""A folder of links to our packages: a submission may not list the project's folder, which Python would do."""


def become(program: list[str], conversation: int, folder: Path) -> NoReturn:
    """Replaces this confined process by the program; ends the process if the program does not start."""
    project = folder / PROJECT
    project.mkdir(exist_ok=True)
    for package in OUR_CODE:
        link = project / package
        link.unlink(missing_ok=True)
        link.symlink_to(ROOT / package)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(project), *(path for path in paths if path != str(ROOT))])
    os.dup2(conversation, CONVERSATION)
    os.closerange(CONVERSATION + 3, 4096)
    try:
        os.execv(program[0], program)
    except OSError as error:
        print(f"{program[0]} cannot be started: {error.strerror}", flush=True)
        os._exit(NOT_STARTED)


def main() -> None:
    # The submission must not read the referee's messages from its standard input.
    conversation = os.dup(CONVERSATION)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, CONVERSATION)
    os.close(nothing)
    from sandbox.protocol.channel import Channel
    from sandbox.runner.main import serve

    serve(Channel(socket.socket(fileno=conversation), takes_descriptors=True), Path.cwd())


if __name__ == "__main__":
    main()
