"""Finds leftovers of a submission and its job in a runner's process, compared with it before its first submission.

A runner that is kept for the next job loads the source again. A clean process is one in which the source then finds
what it would find in a new one. The referee asks only runners in which no candidate's code has run on the host.
"""

from __future__ import annotations

import builtins
import gc
import itertools
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch

from backends.source.module_loader import MODULE_PREFIX
from backends.source.rng_state import rng_snapshot
from sandbox.isolation.file_access import SHARED_MEMORY
from sandbox.protocol.cuda_driver import context_limits
from sandbox.runner.parameter_noise import left_global_state

_NAMESPACES = (builtins, torch, torch.Tensor, torch.nn, torch.nn.Module, torch.nn.functional, torch.nn.init)
"""Namespaces in which sources usually replace functions, or store values."""


class ProcessState:
    """The state of this process before its first submission."""

    def __init__(self) -> None:
        self._restore_rng = rng_snapshot()
        self._environment, self._directory = dict(os.environ), os.getcwd()
        self._first = _state()

    def leftovers(self, folder: Path) -> list[str]:
        """Names what is left of the submission in `folder`, once its runner has dropped it; empty for a clean process.

        Removes the source's modules, frees cached device memory, and restores random generators and environment.
        """
        for name in [name for name in sys.modules if name.startswith(MODULE_PREFIX)]:
            del sys.modules[name]
        gc.collect()
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
            torch._C._cuda_clearCublasWorkspaces()
            torch.cuda.empty_cache()
        os.chdir(self._directory)
        if self._environment != os.environ:
            os.environ.clear()
            os.environ.update(self._environment)
        now = _state()
        left = [
            f"{name} ({_difference(first, now[name])})" for name, first in self._first.items() if now[name] != first
        ]
        if left_global_state(folder):
            left.append("operators or modules of the source")
        self._restore_rng()
        return left


def _difference(first: Any, now: Any) -> str:
    """Where two states differ, for the log."""
    if isinstance(first, dict):
        return ", ".join(".".join(key) for key in first.keys() | now.keys() if first.get(key) != now.get(key))
    if isinstance(first, int):
        return f"{first} before, {now} now"
    longer = itertools.zip_longest(first, now)
    return ", ".join(
        f"number {index}: {one} before, {two} now" for index, (one, two) in enumerate(longer) if one != two
    )


def _state() -> dict[str, Any]:
    """The state by name. Objects that existed before the zygote forked this process do not count."""
    objects = gc.get_objects()
    return {
        "tensors": sum(issubclass(type(each), torch.Tensor) for each in objects),
        "objects of the source": sum(map(_is_of_a_source, objects)),
        "device memory": torch.cuda.memory_allocated(),
        "limits of the context": context_limits() if torch.cuda.is_initialized() else [],  # type: ignore[no-untyped-call]
        "threads": threading.active_count(),
        "shared memory": _own_shared_memory(),
        "libraries of its own": _libraries_outside_the_system(),
        "settings of torch": _torch_settings(),
        "names in torch": {(each.__name__, name): id(value) for each in _NAMESPACES for name, value in _names(each)},
    }


def _is_of_a_source(value: Any) -> bool:
    """Whether it is a function or a class of a source: hooks, patches, caches and threads refer to one."""
    return issubclass(type(value), (FunctionType, type)) and str(value.__module__).startswith(MODULE_PREFIX)


def _names(namespace: Any) -> Iterator[tuple[str, Any]]:
    """Names and values, without the submodules that a library adds when it first needs them."""
    return ((name, value) for name, value in vars(namespace).items() if not isinstance(value, ModuleType))


def _own_shared_memory() -> list[str]:
    with suppress(OSError), os.scandir(SHARED_MEMORY) as listing:
        return sorted(entry.name for entry in listing if entry.stat(follow_symlinks=False).st_uid == os.getuid())
    return []


def _libraries_outside_the_system() -> list[str]:
    """Mapped files of the submission's folder, which is the working directory and may be /tmp too."""
    places = (f"{os.getcwd()}/", "/tmp/")
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as mappings:
        files = {line.split(maxsplit=5)[5].strip() for line in mappings if line.count("/") > 1}
    return sorted(file for file in files if file.startswith(places))


def _torch_settings() -> tuple[Any, ...]:
    backends = torch.backends
    return (
        torch.get_default_dtype(),
        getattr(getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None), "device", None),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled("cuda"),
        backends.mkldnn.enabled,
        *(getattr(backends.cudnn, name) for name in ("enabled", "benchmark", "deterministic", "allow_tf32")),
        backends.cuda.matmul.allow_tf32,
        backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        backends.cuda.flash_sdp_enabled(),  # type: ignore[no-untyped-call]
        backends.cuda.mem_efficient_sdp_enabled(),  # type: ignore[no-untyped-call]
        backends.cuda.math_sdp_enabled(),  # type: ignore[no-untyped-call]
        backends.cuda.cudnn_sdp_enabled(),  # type: ignore[no-untyped-call]
    )
