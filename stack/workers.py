"""`python -m stack.workers`: only the workers of this machine, one for each GPU, as a container runs them.

Redis and the API run elsewhere. Imports nothing of the API: the workers' image has no web framework.
"""

from __future__ import annotations

import sys
from pathlib import Path

from domain.settings import Settings
from stack import container, devices, environment, processes
from stack.devices import CPU_ONLY, DeviceError, Gpu
from stack.drain import Drain
from tasks.fleet.heartbeat import workers
from tasks.node.redis_client import connect


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
    return container.keep_running(
        own,
        lambda temporary: processes.workers(own, gpus_of(own), temporary),
        lambda supervisor: Drain(supervisor, own).run(),
    )


def check(own: Settings) -> int:
    """Returns 0 if every worker has sent a heartbeat lately. A quarantined worker counts: it must not be restarted."""
    expected = processes.workers(own, gpus_of(own), Path())
    return container.check(expected, lambda: [worker.name for worker in workers(connect())])


if __name__ == "__main__":
    sys.exit(container.command("stack.workers", __doc__, run, check))
