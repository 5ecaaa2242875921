"""`python -m stack.workers`: only the workers of this machine, one for each GPU, as a container runs them.

Redis and the API run elsewhere. Imports nothing of the API: the workers' image has no web framework.
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
from stack.drain import Drain
from stack.log_line import LogLine
from stack.shutdown import Stop, ignore_signals, stop_on_signals
from stack.supervisor import Supervisor
from tasks.fleet.heartbeat import workers
from tasks.node.redis_client import connect

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


def gpus_of(own: Settings) -> list[Gpu]:
    """The GPUs to judge on; none if GPU_DEVICE is "cpu". Otherwise raises DeviceError if there is none."""
    gpus = devices.chosen(devices.installed(), own.gpu_device, environment.visible_devices())
    if not gpus and (own.gpu_device or "").lower() != CPU_ONLY:
        raise DeviceError(
            "there is no GPU here: give the container its GPUs (the NVIDIA container toolkit has to be installed on "
            f"the node), or set GPU_DEVICE={CPU_ONLY} to run kernels on the CPU"
        )
    return gpus


def run(own: Settings) -> int:
    """Keeps the workers running until a signal asks to stop, then drains them; returns the exit status."""
    stop_on_signals()
    with tempfile.TemporaryDirectory(prefix="kernel-eval-") as temporary:
        supervisor = Supervisor(ContainerLog(own.log_format))
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


def check(own: Settings) -> int:
    """Returns 0 if every worker has sent a heartbeat lately. A quarantined worker counts: it must not be restarted."""
    expected = {processes.node_name(program) for program in processes.workers(own, gpus_of(own), Path())}
    try:
        missing = sorted(expected - {worker.name for worker in workers(connect())})
    except RedisError as error:
        print(f"the broker cannot be asked ({type(error).__name__}): is CELERY_BROKER_URL right, is Redis up?")
        return FAILED
    if missing:
        print(f"not heard of: {', '.join(missing)}")
    return FAILED if missing else 0


def main() -> int:
    """`python -m stack.workers [--check]`; returns the exit status."""
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
