"""A zygote that a pool child starts before it imports torch: both imports then take their seconds at once.

Imports no GPU library itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from domain.settings import settings
from sandbox.supervisor.zygote_client import ZygoteProcess
from tasks.node import device_info
from tasks.node.private_dir import make_private
from tasks.node.scratch_dir import ScratchDir

WORK = "work"
"""Folder of the pool children's folders, below STATE_DIR."""


@dataclass(frozen=True)
class EarlyZygote:
    """A process without its set-up, and the folder of the session that will own both (`BuildSession`)."""

    folder: ScratchDir
    process: ZygoteProcess

    def close(self) -> None:
        """End the process and remove the folder; only where no session has got them."""
        self.process.close()
        self.folder.close()


@cache
def early_zygote() -> EarlyZygote | None:
    """This process's one; started at the first call, by its main thread. None where the device is a GPU.

    Raises InfrastructureFault or OSError if the folder cannot be made.
    """
    if device_info.detect().is_gpu:
        return None
    make_private(settings().state_dir, "STATE_DIR")
    folder = ScratchDir(settings().state_dir / WORK)
    return EarlyZygote(folder, ZygoteProcess(folder.path, gpu=False))
