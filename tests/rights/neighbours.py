"""Two submissions beside each other: the second tries to remove what the first has in shared memory.

`python -m tests.rights.neighbours FOLDER` prints how each build ends.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from backends.base import Target
from domain.fault import KernelFault
from domain.kernel import Kernel, KernelType
from sandbox.isolation.uid import allow_traversal
from sandbox.supervisor.session import Session
from sandbox.supervisor.zygote_client import Zygote

NAME = "/dev/shm/kernel-eval-neighbour"
KEEPS = f"open({NAME!r}, 'x').close()\ndef kernel_fn(x): return x\n"
REMOVES = f"import os\nos.unlink({NAME!r})\ndef kernel_fn(x): return x\n"
LIFE_S = 60.0


def main() -> None:
    folder = Path(sys.argv[1]) / "neighbours"
    folder.mkdir()
    allow_traversal(folder)
    zygote = Zygote(folder, arch=None, memory_limit=1 << 30)
    sessions = []
    try:
        for name, source in (("keeps", KEEPS), ("removes", REMOVES)):
            private = zygote.private_folder(folder / name)
            runner = zygote.runner(private, gpu=False, deadline=time.monotonic() + LIFE_S, cancelled=lambda: False)
            sessions.append(Session(runner, Target("cpu", None), 1 << 20))
            try:
                sessions[-1].build(Kernel(source, KernelType.TORCH))
                print(f"{name}: done")
            except KernelFault as fault:
                print(f"{name}: {fault.message}")
    finally:
        for session in sessions:
            session.close()
        zygote.close()


if __name__ == "__main__":
    main()
