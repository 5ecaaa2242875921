"""The zygote: a process that has imported the GPU libraries, holds no secret, and forks runners.

`sandbox.supervisor.zygote_client` starts it with a clean environment and without CUDA. A fork from it costs 4 ms; a
fresh interpreter costs 3.6 s on an H200 (docs/measurements.md). It obeys two commands: fork and reap.
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
from types import ModuleType

from backends.dry_run import fake_tensors
from backends.languages.registry import LANGUAGES
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
    "triton.experimental.gluon.nvidia.hopper",  # Triton itself imports it at the first call of a kernel.
    "cupy",
    "cuda.bindings.driver",
)
FIRST_DESCRIPTOR = 4
ANONYMOUS_EXIT = 70
SUPERVISOR = "sandbox.supervisor"
"""The trusted side: no runner has its code."""


def preload() -> None:
    """Imports what submissions use. A submission that needs what is missing gets an ImportError later.

    All modules that run inside a runner must be importable: a runner cannot read the project's folder. Otherwise it
    raises ImportError: the service's fault, never a kernel's.
    """
    # Most workers have none of the languages: a source that needs one hears how it is added.
    for name in (*PRELOADED, *(language.module for language in LANGUAGES if language.preloaded)):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    for package in OUR_CODE:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.startswith(SUPERVISOR):
                importlib.import_module(module.name)


@contextlib.contextmanager
def no_device_visible() -> Iterator[None]:
    """Hides the GPUs while libraries are imported: one that counts GPUs must not open NVML or CUDA here.

    Neither survives a fork: a runner whose zygote has used NVML sees no GPU (docs/measurements.md).
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        # torch prints "No CUDA runtime is found" here, as intended.
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        del os.environ["CUDA_VISIBLE_DEVICES"]
        if visible is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = visible


def fork_runner(control: Channel, confinement: Confinement, folder: Path, *, gpu: bool, program: list[str]) -> int:
    """Forks a runner with the socket and the output pipe that came with the command; returns its pid.

    `program` is a command that the runner becomes, if any (`sandbox.runner.tool_entry`).
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
        confinement.apply(folder, gpu=gpu, children_use_gpu=bool(program))
        if program:
            tool_entry.become(program, conversation, folder)
        os.dup2(conversation, 3)
        confinement.close_all_but(FIRST_DESCRIPTOR)
        from sandbox.runner.main import serve

        # multiprocessing's `spawn` imports the main module again, and no process of a submission can import ours.
        sys.modules["__main__"] = ModuleType("__main__")
        serve(Channel(socket.socket(fileno=3), takes_descriptors=True), folder)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(ANONYMOUS_EXIT)


def abilities(confinement: Confinement) -> dict[str, bool]:
    """Properties of the confinement on this host, for the launcher."""
    return {
        "has_own_users": confinement.has_own_users,
        "children_use_gpu": confinement.children_use_gpu,
        "uses_seccomp": confinement.uses_seccomp,
    }


def reap(pid: int, user: int, runners: set[int]) -> int:
    """Waits for a runner that the launcher has killed, kills its descendants, returns its wait status.

    The runner was a subreaper, so the zygote, another one, has inherited all of its descendants.
    """
    _, status = os.waitpid(pid, 0)
    runners.discard(pid)
    while orphans := process_tree.children(os.getpid()) - runners:
        if user != os.geteuid():
            process_tree.kill_user(user)
        for orphan in orphans:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(orphan, signal.SIGKILL)
                os.waitpid(orphan, 0)
    return status


def main() -> None:
    die_with_parent(os.getppid())
    keep_descendants()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Libraries start threads that can be forked (OpenBLAS); this process has one Python thread.
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
    control = Channel(socket.socket(fileno=int(sys.argv[1])), takes_descriptors=True)
    with no_device_visible():
        preload()
        # Says for which device it is, and which tools its runners may use.
        set_up = control.receive()
        arch: str | None = set_up["arch"]
        gpu = arch is not None
        if arch is not None:
            cache_key.cache_identity(arch)
            fake_tensors.preload()
        else:
            # Done once here: it would take each runner 3 ms.
            importlib.import_module("backends.interpreter.patches").install()
        importlib.import_module("sandbox.runner.parameter_noise").note_operators()
    confinement = Confinement(Path.cwd(), gpu=gpu, tools=[Path(folder) for folder in set_up["tools"]])
    # Runners share these objects: the collector never moves or scans them again.
    gc.collect()
    gc.freeze()
    control.send({"op": READY, **abilities(confinement)})
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
