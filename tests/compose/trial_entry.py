"""A trial and its engine, as the command that `confined` runs: `python -m tests.compose` starts it."""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import httpx

from tests.compose import namespaced_command, trials
from tests.compose.engine import Engine, EngineError, engine
from tests.compose.journal import say

NOT_RUN = "docker-compose.yml was not tried here: {}."


def started(stack: ExitStack, folder: Path, runtime: Path, *, cached: bool) -> Engine:
    """Running until the stack is closed; raises EngineError."""
    before = (folder / "data").exists()
    try:
        return stack.enter_context(engine(folder, runtime))
    except EngineError:
        if not (cached and before):
            raise
        # The data of a run that was killed might be why.
        shutil.rmtree(folder / "data")
        return stack.enter_context(engine(folder, runtime))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="the engine's")
    parser.add_argument("--runtime", type=Path, required=True, help="for sockets and the projects' files")
    parser.add_argument("--archive", type=Path, required=True, help="of the base")
    parser.add_argument("--limit", type=int, required=True, help="seconds")
    parser.add_argument("--short", action="store_true")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    signal.signal(signal.SIGALRM, lambda *_: _late(given.limit))
    signal.alarm(given.limit)
    namespaced_command.hide_folders()
    trial = trials.short if given.short else trials.whole
    good = False
    try:
        with ExitStack() as stack:
            made = started(stack, given.folder, given.runtime, cached=given.short)
            good = trial(made, given.runtime, given.archive)
    except EngineError as error:
        if given.short:
            print(NOT_RUN.format(error))
            return 0
        say(str(error))
    except (AssertionError, TimeoutError, httpx.HTTPError) as error:
        say(f"{type(error).__name__}: {error}")
    except subprocess.CalledProcessError as error:
        say(f"`{error.cmd[0]} … {error.cmd[-1]}` ended with {error.returncode}:\n{_end(error.stderr)}")
    say("all as it should be; nothing is left of it" if good else "NOT as it should be")
    return 0 if good else 1


def _late(limit_s: int) -> None:
    raise TimeoutError(f"not finished after {limit_s} s")


def _end(output: str | bytes | None) -> str:
    text = output.decode(errors="replace") if isinstance(output, bytes) else output or ""
    return text[-2000:]


if __name__ == "__main__":
    sys.exit(main())
