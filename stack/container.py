"""What a container of workers or of builders does: keeps its programs running, says whether they are heard of."""

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
from stack.stopping import Stop, ignore_signals, stop_on_signals
from stack.supervisor import Supervisor

SLICE_S = 0.5
FAILED = 1
MALFORMED = 2


class Output:
    """The processes' lines on stdout, where a container's log is."""

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
            # Whoever read it has gone, as `tee` does with the same Ctrl-C: no reason to give up running jobs.
            self._closed = True


def keep_running(
    own: Settings, programs: Callable[[Path], list[Program]], finish: Callable[[Supervisor], None] = lambda _: None
) -> int:
    """Keeps the programs running until asked to stop, then has them `finish`; the exit status.

    `programs` is given a folder for temporary files, which is gone in the end.
    """
    stop_on_signals()
    with tempfile.TemporaryDirectory(prefix="kernel-eval-") as temporary:
        supervisor = Supervisor(Output(own.log_format))
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


def check(programs: list[Program], heard_of: Callable[[], Iterable[str]]) -> int:
    """A container's health: 0 where each of its programs was heard of in the last seconds: `heard_of` has names."""
    expected = {processes.node_name(program) for program in programs}
    try:
        missing = sorted(expected - set(heard_of()))
    except RedisError as error:
        print(f"the broker cannot be asked ({type(error).__name__}): is CELERY_BROKER_URL right, is Redis up?")
        return FAILED
    if missing:
        print(f"not heard of: {', '.join(missing)}")
    return FAILED if missing else 0


def command(module: str, says: str | None, run: Callable[[Settings], int], check: Callable[[Settings], int]) -> int:
    """`python -m MODULE [--check]`; the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=says)
    parser.add_argument("--check", action="store_true", help="say whether they live, and start nothing")
    arguments = parser.parse_args()
    try:
        return check(settings()) if arguments.check else run(settings())
    except (EnvError, DeviceError) as error:
        print(error, file=sys.stderr)
        return FAILED if isinstance(error, DeviceError) else MALFORMED
