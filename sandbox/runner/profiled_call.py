"""One call of a kernel between the marks that a profiler waits for (`--profile-from-start off`): UNTRUSTED."""

from __future__ import annotations

from collections.abc import Callable

import torch

from backends.base import Target


def inspected(call: Callable[[], object], warm_up: int, target: Target) -> None:
    """Calls `warm_up` times, then once more with the profiler on; returns when the device is at rest."""
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
