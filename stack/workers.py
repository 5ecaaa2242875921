"""`python -m stack.workers`: the workers of this machine alone, one pinned to each GPU, as a container runs them.

Redis and the API are elsewhere. Imports nothing of the API: the workers' image has no web framework.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from environs import EnvError
from redis.exceptions import RedisError

from domain.settings import CONSOLE, JSON, Settings, settings
from stack import devices, environment, processes
from stack.devices import CPU_ONLY, DeviceError, Gpu
from stack.draining import Drain
from stack.log_line import LogLine
from stack.stopping import Stop, ignore_signals, stop_on_signals
from stack.supervisor import Supervisor
from tasks.heartbeat import workers
from tasks.store import connect

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


def gpus_of(own: Settings) -> list[Gpu]:
    """The GPUs to judge on; none where GPU_DEVICE is "cpu". Raises DeviceError where there is none otherwise."""
    found = devices.chosen(devices.installed(), own.gpu_device, environment.visible_devices())
    if not found and (own.gpu_device or "").lower() != CPU_ONLY:
        raise DeviceError(
            "there is no GPU here: give the container its GPUs (the NVIDIA container toolkit has to be installed on "
            f"the node), or set GPU_DEVICE={CPU_ONLY} to run kernels on the CPU"
        )
    return found


def run(own: Settings) -> int:
    """Keeps the workers running until asked to stop, and then drains them; the exit status."""
    stop_on_signals()
    with tempfile.TemporaryDirectory(prefix="kernel-eval-") as temporary:
        supervisor = Supervisor(Output(own.log_format))
        try:
            for program in processes.workers(own, gpus_of(own), Path(temporary)):
                supervisor.start(program)
            while True:
                supervisor.tick(SLICE_S)
        except Stop:
            Drain(supervisor, own).run()
            return 0
        finally:
            ignore_signals()
            supervisor.stop()


def silent(own: Settings) -> list[str]:
    """The workers that belong on this machine and were not heard of in the last seconds. Raises RedisError."""
    expected = {processes.node_name(program) for program in processes.workers(own, gpus_of(own), Path())}
    return sorted(expected - {worker.name for worker in workers(connect())})


def check(own: Settings) -> int:
    """A container's health: 0 where every worker is heard of. A quarantined one is: it must not be restarted."""
    try:
        missing = silent(own)
    except RedisError as error:
        print(f"the broker cannot be asked ({type(error).__name__}): is CELERY_BROKER_URL right, is Redis up?")
        return FAILED
    if missing:
        print(f"not heard of: {', '.join(missing)}")
    return FAILED if missing else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m stack.workers", description=__doc__)
    parser.add_argument("--check", action="store_true", help="say whether they live, and start nothing")
    arguments = parser.parse_args()
    try:
        return check(settings()) if arguments.check else run(settings())
    except (EnvError, DeviceError) as error:
        print(error, file=sys.stderr)
        return FAILED if isinstance(error, DeviceError) else MALFORMED


if __name__ == "__main__":
    sys.exit(main())
