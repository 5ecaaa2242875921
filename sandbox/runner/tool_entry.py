"""A runner beneath a tool that looks into it (profiler, sanitizer): both are one stranger, confined as one.

A tool starts the program that it looks into, so that the runner comes of no zygote here, and imports everything anew.
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
"""The one descriptor that every tool hands on."""
RUNNER = (sys.executable, "-P", "-m", "sandbox.runner.tool_entry")
"""The runner, as a tool is told to start it."""
NOT_STARTED = 127
PROJECT = "project"
"""Links to our packages: a stranger may not look into the project's folder, and Python looks for them in one."""


def become(program: list[str], conversation: int, folder: Path) -> NoReturn:
    """Replaces this process, which is confined already, by the program; ends it where that does not start."""
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
    # Nothing that the submission reads from its input is the referee's.
    conversation = os.dup(CONVERSATION)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, CONVERSATION)
    os.close(nothing)
    from sandbox.protocol.channel import Channel
    from sandbox.runner.main import serve

    serve(Channel(socket.socket(fileno=conversation), takes_descriptors=True), Path.cwd())


if __name__ == "__main__":
    main()
