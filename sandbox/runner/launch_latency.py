"""Measures what a launch costs in one CUDA context: each process starts the same kernel slightly sooner or later.

Contexts of one card differ by up to 0.2 µs a launch, for as long as they live. The difference depends slightly on the
kernel. A kernel on few multiprocessors predicts one on all of them to 30 ns. A kernel on all of them, with memory that
is in no cache, predicts it to 19 ns (docs/measurements.md). The runner measures before it has a submission, so that no
submission can influence the result.
"""

from __future__ import annotations

import itertools

import torch

from sandbox.protocol.cuda_driver import Gate

LAUNCHES = 200
"""Launches of one measurement. All are queued behind a gate, so that none waits for the host; a queue holds more."""
TRIES = 3
ELEMENTS = 1 << 18
"""Elements of each operand: enough blocks for every multiprocessor of the largest card."""
TIMES_THE_L2 = 2
"""The operands together take twice the L2 cache, so that none of them is found in it, like a window's inputs."""


def launch_times_ms(device: str, tries: int = TRIES, *, again: bool = False) -> list[float]:
    """Time of one launch of a trivial kernel, back to back, in ms: one figure a try, none if memory is short.

    With `again`, the memory stays allocated for the next measurement. Otherwise it is freed, because a kernel may need
    all memory of the card.
    """
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    try:
        # The content of the memory does not matter.
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
    for sequence_number in range(1, tries + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        gate.wait_on_gate(stream, sequence_number)
        start.record()
        for source, target in pairs:
            torch.mul(source, 2, out=target)
        end.record()
        gate.release(sequence_number)
        end.synchronize()
        times.append(float(start.elapsed_time(end)) / LAUNCHES)
    gate.withdraw()
    del operands, pairs, source, target
    if not again:
        torch.cuda.empty_cache()
    return times
