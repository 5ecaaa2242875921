"""Where calls of several launches keep data for each other: drawn anew for each window.

More or less of it stays in the L2 by where it lies, which makes up to a tenth of their time (docs/measurements.md): one
place all along would be one throw of the dice.
"""

from __future__ import annotations

import secrets

from profiling.results.samples import TimeRecord
from profiling.window.call_buffers import Slots
from tasks.runtime.kernel_run import Contender

PAD_STEP, PAD_STEPS = 2 << 20, 32
"""The driver gives memory in pieces of 2 MiB."""


def relocate(contender: Contender, slots: Slots, record: TimeRecord) -> None:
    """Before the slots are filled for the next window, whose inputs are nobody's to see ahead of its gun.

    Also where it is not known how many launches a call has. Raises KernelFault where the calls fail.
    """
    if record.gated and record.launches != 1 and slots.filled and contender.range is not None:
        contender.range.relocate(slots, PAD_STEP * (1 + secrets.randbelow(PAD_STEPS)))
