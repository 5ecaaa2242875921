"""What a launch costs in a context: the same kernel is started that much sooner or later in each process.

Contexts of one card differ by up to 0.2 µs a launch, for whatever they launch, for as long as they live
(docs/measurements.md); what they take to fill memory says nothing about that. Asked of a runner before there is a
submission in it, so that nobody can influence the answer.
"""

from __future__ import annotations

import torch

from sandbox.cuda import Gate

LAUNCHES = 200
"""Which are all queued behind a gate, so that none waits for the host: fewer than a queue holds."""
TRIES = 2
ELEMENTS = 1024


def launch_times_ms(device: str, tries: int = TRIES) -> list[float]:
    """ms a launch of a kernel that does next to nothing, back to back; so many tries."""
    source, target = (torch.empty(ELEMENTS, device=device) for _ in range(2))  # What is in there, a launch never sees.
    torch.mul(source, 2, out=target)
    gate = Gate()
    gate.close()
    stream = int(torch.cuda.current_stream().cuda_stream)
    times: list[float] = []
    for shot in range(1, tries + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        gate.hold(stream, shot)
        start.record()
        for _ in range(LAUNCHES):
            torch.mul(source, 2, out=target)
        end.record()
        gate.fire(shot)
        end.synchronize()
        times.append(float(start.elapsed_time(end)) / LAUNCHES)
    gate.withdraw()
    return times
