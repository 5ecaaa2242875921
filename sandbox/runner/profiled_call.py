"""Runs one call of a kernel with the profiler on, for a tool started with `--profile-from-start off`: UNTRUSTED."""

from __future__ import annotations

from collections.abc import Callable

import torch

from backends.base import Target


def call_profiled(call: Callable[[], object], warm_up: int, target: Target) -> None:
    """Calls `warm_up` times, then once with the profiler on; returns when the device is idle."""
    for _ in range(warm_up):
        call()
    if not target.is_cuda:
        call()
        return
    torch.cuda.synchronize()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    call()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
