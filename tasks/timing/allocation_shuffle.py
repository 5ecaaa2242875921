"""Moves the memory that a call's launches use between each other, before every window.

How much of that memory stays in the L2 depends on its address and changes a call's time by up to a tenth
(docs/measurements.md). With a fixed address, a whole measurement would depend on one random draw.
"""

from __future__ import annotations

import secrets

from profiling.results.samples import WindowSetup
from profiling.window.call_buffers import Slots
from tasks.runtime.kernel_run import KernelRun

PAD_STEP, PAD_STEPS = 2 << 20, 32
"""Step of the padding in bytes (the driver allocates pieces of 2 MiB), and number of steps to choose from."""


def shuffle_allocations(kernel_run: KernelRun, slots: Slots, setup: WindowSetup) -> None:
    """Moves the memory at random, if a call has several launches or an unknown number. Raises KernelFault if calls
    fail.

    It runs before the slots are filled for the next window, because a runner must not see those inputs before their
    release.
    """
    if kernel_run.window_session is not None and _is_moved(slots, setup):
        kernel_run.window_session.shift_allocations(slots, PAD_STEP * (1 + secrets.randbelow(PAD_STEPS)))


def free_memory_to_move(kernel_run: KernelRun, slots: Slots, setup: WindowSetup) -> None:
    """Gives back the memory that `shuffle_allocations` would move. Raises KernelFault if the runner fails.

    It has to run for all kernels before any allocates: each may then get memory that another had. A process that frees
    and allocates by itself always gets its own part of the device's memory again. A large call's time depends on it.
    """
    if kernel_run.session is not None and _is_moved(slots, setup):
        kernel_run.session.free_cache()


def _is_moved(slots: Slots, setup: WindowSetup) -> bool:
    return setup.moves_memory and slots.filled
