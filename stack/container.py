"""The main program of a container of workers: keeps them running and checks their health."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from environs import EnvError
from redis.exceptions import RedisError

from domain.settings import CONSOLE, JSON, Settings, settings
from stack import processes
from stack.child import Program
from stack.devices import DeviceError
from stack.log_line import LogLine
from stack.shutdown import Stop, ignore_signals, stop_on_signals
from stack.supervisor import Supervisor

SLICE_S = 0.5
FAILED = 1
MALFORMED = 2


class ContainerLog:
    """Prints the processes' lines to stdout, the log of a container."""

    def __init__(self, form: str = CONSOLE) -> None:
        self._json = form == JSON
        self._closed = False

    def line(self, name: str, text: str, *, quiet: bool = False) -> None:
        if self._closed:
            return
        line = LogLine.read(name, text)
        try:
            print(line.json if self._json else f"{name:<6} | {line.readable}", flush=True)
        except OSError:
            # The reader has gone, as `tee` does on the same Ctrl-C. Running jobs continue.
            self._closed = True


def keep_running(
    own: Settings, programs: Callable[[Path], list[Program]], finish: Callable[[Supervisor], None] = lambda _: None
) -> int:
    """Keeps the programs running until a signal asks to stop, then calls `finish`; returns the exit status.

    `programs` gets a folder for temporary files, which is removed at the end.
    """
    stop_on_signals()
    with tempfile.TemporaryDirectory(prefix="kernel-eval-") as temporary:
        supervisor = Supervisor(ContainerLog(own.log_format))
        try:
            for program in programs(Path(temporary)):
                supervisor.start(program)
            while True:
                supervisor.tick(SLICE_S)
        except Stop:
            finish(supervisor)
            return 0
        finally:
            ignore_signals()
            supervisor.stop()


def check(programs: list[Program], live_names: Callable[[], Iterable[str]]) -> int:
    """A container's health: 0 if `live_names` has the name of each of its programs."""
    expected = {processes.node_name(program) for program in programs}
    try:
        missing = sorted(expected - set(live_names()))
    except RedisError as error:
        print(f"the broker cannot be asked ({type(error).__name__}): is CELERY_BROKER_URL right, is Redis up?")
        return FAILED
    if missing:
        print(f"not heard of: {', '.join(missing)}")
    return FAILED if missing else 0


def command(
    module: str, description: str | None, run: Callable[[Settings], int], check: Callable[[Settings], int]
) -> int:
    """`python -m MODULE [--check]`; returns the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--check", action="store_true", help="say whether they live, and start nothing")
    arguments = parser.parse_args()
    try:
        return check(settings()) if arguments.check else run(settings())
    except (EnvError, DeviceError) as error:
        print(error, file=sys.stderr)
        return FAILED if isinstance(error, DeviceError) else MALFORMED
