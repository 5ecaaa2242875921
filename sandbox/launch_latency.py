"""What a launch costs in a context: the same kernel is started that much sooner or later in each process.

Contexts of one card differ by up to 0.2 µs a launch, for whatever they launch, for as long as they live
(docs/measurements.md). Asked of a runner before there is a submission in it, so that nobody can influence the answer.
"""

from __future__ import annotations

import torch

LAUNCHES = 200
TRIES = 3
HOLD_CYCLES = 4_000_000
"""About 2 ms, in which the launches are queued: they must not wait for the host."""
LONGEST_HOLD_CYCLES = 64_000_000
ELEMENTS = 1024


def launch_times_ms(device: str) -> list[float]:
    """ms a launch of a kernel that does next to nothing, back to back; several tries.

    A try in which the device had to wait for the host is not one; empty when there are no others.
    """
    source = torch.zeros(ELEMENTS, device=device)
    target = torch.empty_like(source)
    torch.mul(source, 2, out=target)
    times: list[float] = []
    hold = HOLD_CYCLES
    while len(times) < TRIES and hold <= LONGEST_HOLD_CYCLES:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        torch.cuda._sleep(hold)  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(LAUNCHES):
            torch.mul(source, 2, out=target)
        end.record()
        waited = start.query()  # type: ignore[no-untyped-call]
        end.synchronize()
        if waited:
            hold *= 2
        else:
            times.append(float(start.elapsed_time(end)) / LAUNCHES)
    return times
