"""What a launch costs in a context: the same kernel is started that much sooner or later in each process.

Contexts of one card differ by up to 0.2 µs a launch, for as long as they live. By how much depends a little on what is
launched: what a kernel on a few multiprocessors tells leaves 30 ns unknown of one on all of them, what one tells that
works on all of them, on memory that is in no cache, leaves 19 (docs/measurements.md). Asked of a runner before there is
a submission in it, so that nobody can influence the answer.
"""

from __future__ import annotations

import itertools

import torch

from sandbox.protocol.cuda_driver import Gate

LAUNCHES = 200
"""Which are all queued behind a gate, so that none waits for the host: fewer than a queue holds."""
TRIES = 3
ELEMENTS = 1 << 18
"""Of each operand: blocks for every multiprocessor of the largest card."""
TIMES_THE_L2 = 2
"""So much memory is gone through that none of it is found in the cache, as a window's inputs are not."""


def launch_times_ms(device: str, tries: int = TRIES, *, again: bool = False) -> list[float]:
    """ms a launch of a kernel that does next to nothing, back to back; so many tries, none where memory is short.

    Who will ask `again` finds the memory at hand, else it is given back: a kernel may want all that the card has.
    """
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    try:
        # What is in there, a launch never sees.
        operands = torch.empty((max(TIMES_THE_L2 * l2_bytes // (8 * ELEMENTS), 1), 2, ELEMENTS), device=device)
    except torch.OutOfMemoryError:
        return []
    pairs = list(itertools.islice(itertools.cycle([pair.unbind() for pair in operands]), LAUNCHES))
    source, target = pairs[0]
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
        for source, target in pairs:
            torch.mul(source, 2, out=target)
        end.record()
        gate.fire(shot)
        end.synchronize()
        times.append(float(start.elapsed_time(end)) / LAUNCHES)
    gate.withdraw()
    del operands, pairs, source, target
    if not again:
        torch.cuda.empty_cache()
    return times
