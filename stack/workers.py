"""`python -m stack.workers`: the workers of this machine alone, one pinned to each GPU, as a container runs them.

Redis and the API are elsewhere. Imports nothing of the API: the workers' image has no web framework.
"""

from __future__ import annotations

import sys
from pathlib import Path

from domain.settings import Settings
from stack import container, devices, environment, processes
from stack.devices import CPU_ONLY, DeviceError, Gpu
from stack.draining import Drain
from tasks.fleet.heartbeat import workers
from tasks.node.redis_client import connect


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
    return container.keep_running(
        own,
        lambda temporary: processes.workers(own, gpus_of(own), temporary),
        lambda supervisor: Drain(supervisor, own).run(),
    )


def check(own: Settings) -> int:
    """0 where every worker is heard of. A quarantined one is: it must not be restarted."""
    expected = processes.workers(own, gpus_of(own), Path())
    return container.check(expected, lambda: [worker.name for worker in workers(connect())])


if __name__ == "__main__":
    sys.exit(container.command("stack.workers", __doc__, run, check))
