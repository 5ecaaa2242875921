"""The zygote: a process that has imported the GPU libraries, holds no secret, and forks runners from that state.

Started by exec with a clean environment (`sandbox.supervisor.zygote_client`), CUDA not initialised: a fork from here
costs 4 ms where a fresh interpreter costs 3.6 s on an H200 (docs/measurements.md). It obeys two commands: fork, and
reap.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import pkgutil
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

from backends.triton import cache_key
from sandbox.isolation import process_tree
from sandbox.isolation.apply import Confinement
from sandbox.isolation.file_access import OUR_CODE
from sandbox.isolation.rlimits import die_with_parent, keep_descendants
from sandbox.protocol.channel import READY, Channel, ChannelClosed
from sandbox.runner import tool_entry

PRELOADED = (
    "numpy",
    "numpy.random",
    "torch",
    "torch.utils.cpp_extension",
    "triton",
    "triton.language",
    "triton.language.extra.libdevice",
    "triton.experimental.gluon.nvidia.hopper",  # Triton itself imports it in its first call of a kernel.
    "cupy",
    "cuda.bindings.driver",
)
FIRST_DESCRIPTOR = 4
ANONYMOUS_EXIT = 70
SUPERVISOR = "sandbox.supervisor"
"""The trusted side: no runner has its code."""

HOST = "cpu"
"""In the place of a GPU's architecture."""


def preload() -> dict[str, str]:
    """Imports what submissions use; says what is missing. A missing library is the submission's ImportError later.

    Our own modules have to be there: raises ImportError, which is the service's fault and no kernel's. All that a
    runner may read, for it cannot look into the project's folder.
    """
    missing: dict[str, str] = {}
    for name in PRELOADED:
        try:
            importlib.import_module(name)
        except Exception as error:
            missing[name] = f"{type(error).__name__}: {error}"
    for package in OUR_CODE:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.startswith(SUPERVISOR):
                importlib.import_module(module.name)
    return missing


@contextlib.contextmanager
def no_device_visible() -> Iterator[None]:
    """While libraries are imported: one that asks how many GPUs there are must not open NVML or CUDA here.

    Neither survives a fork: a runner whose zygote has asked NVML is told that there is no GPU (docs/measurements.md).
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        # torch says "No CUDA runtime is found" at this point, which is what is wanted.
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        del os.environ["CUDA_VISIBLE_DEVICES"]
        if visible is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = visible


def fork_runner(control: Channel, confinement: Confinement, folder: Path, *, gpu: bool, program: list[str]) -> int:
    """Forks a runner on the socket and the output pipe that came with the command; returns its pid.

    `program` is what it becomes, where it does not stay what it is (`sandbox.runner.tool_entry`).
    """
    conversation, output = control.descriptor(), control.descriptor()
    pid = os.fork()
    if pid:
        os.close(conversation)
        os.close(output)
        return pid
    try:
        control.close()
        devnull = os.open(os.devnull, os.O_RDONLY)
        os.dup2(devnull, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        confinement.apply(folder, gpu=gpu, starts_others=bool(program))
        if program:
            tool_entry.become(program, conversation, folder)
        os.dup2(conversation, 3)
        confinement.close_all_but(FIRST_DESCRIPTOR)
        from sandbox.runner.main import serve

        serve(Channel(socket.socket(fileno=3), takes_descriptors=True), folder)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(ANONYMOUS_EXIT)


def abilities(confinement: Confinement) -> dict[str, bool]:
    """What this host lets strangers have, and whether a filter holds them."""
    return {
        "gives_users": confinement.gives_users,
        "starts_others": confinement.starts_others,
        "filters": confinement.filters,
    }


def reap(pid: int, user: int, runners: set[int]) -> int:
    """Waits for a runner that the launcher has killed, ends what it left behind, returns its wait status.

    All that the runner has started was its own and is the zygote's now (both are subreapers).
    """
    _, status = os.waitpid(pid, 0)
    runners.discard(pid)
    while orphans := process_tree.children(os.getpid()) - runners:
        if user != os.geteuid():
            process_tree.end_all_of(user)
        for orphan in orphans:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(orphan, signal.SIGKILL)
                os.waitpid(orphan, 0)
    return status


def main() -> None:
    die_with_parent(os.getppid())
    keep_descendants()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Libraries start threads of their own (OpenBLAS), which know how to be forked; ours is the only Python thread.
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
    control = Channel(socket.socket(fileno=int(sys.argv[1])), takes_descriptors=True)
    arch = sys.argv[2]
    gpu = arch != HOST
    with no_device_visible():
        missing = preload()
        if gpu:
            cache_key.cache_identity(arch)
        else:
            importlib.import_module("backends.interpreter.patches").install()  # Each runner would, which takes 3 ms.
        importlib.import_module("sandbox.runner.parameter_noise").note_operators()
    confinement = Confinement(Path.cwd(), gpu=gpu, tools=[Path(folder) for folder in sys.argv[3:]])
    # Everything imported so far stays shared with the runners: never moved, never scanned again.
    gc.collect()
    gc.freeze()
    control.send({"op": READY, "missing": missing, **abilities(confinement)})
    runners: set[int] = set()
    while True:
        try:
            command = control.receive()
        except ChannelClosed:
            return
        if command["op"] == "fork":
            pid = fork_runner(
                control,
                confinement,
                Path(command["folder"]),
                gpu=gpu and command["gpu"],
                program=command["command"],
            )
            runners.add(pid)
            control.send({"op": "forked", "pid": pid})
        elif command["op"] == "reap":
            control.send({"op": "reaped", "status": reap(int(command["pid"]), int(command["user"]), runners)})


if __name__ == "__main__":
    main()
