"""`make compose`: docker-compose.yml tried for real, with an engine of its own and no image from anywhere.

As root, on Debian; what it makes is under folders of its own, which it removes in the end. DEBIAN and MIRROR name the
release of the base image and where it is from, COMPOSE the tool (`docker compose`), PIP_FIND_LINKS a folder of wheels,
PIP_ARGS more arguments of pip. Ends with 1 where a verdict is wrong, a job is lost or counted twice, or anything is
not as docs/deployment.md says.

`--short` is the part that continuous integration runs. It keeps base and images in ~/.cache/kernel-eval-compose for
the next run. Where no engine can run it prints one line and ends with 0.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.compose import cache, host, namespaced_command
from tests.compose.engine import version
from tests.compose.journal import say
from tests.compose.project import ROOT
from tests.compose.trial_entry import NOT_RUN

LONG_S, SHORT_S = 3600, 1500
"""Limits in s. The short trial took 380 to 750 s with the installation of packages; a slow host may take twice that."""

STOP_S = 90
"""After its limit a trial has so long to take everything down, before it is killed."""


def removed(stack: ExitStack, prefix: Path | None = None) -> Path:
    """A new folder that goes with the stack."""
    folder = Path(tempfile.mkdtemp(prefix="kernel-eval-", dir=prefix))
    stack.callback(shutil.rmtree, folder)
    return folder


def confine(stack: ExitStack, folder: Path, archive: Path, limit_s: int, *more: str) -> int:
    """The trial's exit status: 1 also where it exceeds its limit."""
    runtime = removed(stack, Path("/run"))  # Paths of sockets have to be short.
    stack.callback(namespaced_command.remove_cgroups, runtime.name)
    given = {"--folder": folder, "--runtime": runtime, "--archive": archive, "--limit": limit_s}
    options = [str(word) for pair in given.items() for word in pair]
    try:
        return namespaced_command.run(
            [sys.executable, "-m", "tests.compose.trial_entry", *options, *more], limit_s + STOP_S
        )
    except namespaced_command.TimeLimit as error:
        say(f"{error}; killed")
        return 1


def long(kept: Path | None, *, install: bool) -> int:
    if reason := host.obstacle(host.LONG, kept or Path(tempfile.gettempdir()), install=install):
        print(f"{reason}.", file=sys.stderr)
        return 2
    with ExitStack() as stack:
        folder = kept or removed(stack)
        folder.mkdir(parents=True, exist_ok=True)
        return confine(stack, folder, folder / "base.tar", LONG_S)


def short(kept: Path | None, *, install: bool) -> int:
    began = time.monotonic()
    home = kept or cache.default_folder()
    if reason := host.obstacle(host.ENGINE, home, install=install):
        print(NOT_RUN.format(reason))
        return 0
    with ExitStack() as stack:
        if not stack.enter_context(cache.locked(home)):
            say(f"{home} is in use; nothing is kept of this run")
            home = removed(stack)
        folder = cache.images(home, cache.images_key(ROOT, version()))
        limit_s = max(1, SHORT_S - int(time.monotonic() - began))
        status = confine(stack, folder, cache.archive(home), limit_s, "--short")
        if status != 0:
            cache.clear(home)
        return status


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.compose", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="what continuous integration runs")
    parser.add_argument("--install", action="store_true", help="the Debian packages that are missing, by apt-get")
    parser.add_argument("--folder", type=Path, help="kept, with its images, for the next run that names it")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    host.extend_path()
    folder = given.folder.absolute() if given.folder else None
    return (short if given.short else long)(folder, install=given.install)


if __name__ == "__main__":
    sys.exit(main())
