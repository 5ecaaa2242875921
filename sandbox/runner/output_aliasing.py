"""Whether a kernel reuses the memory of its outputs between calls, and whether its first call gave other values.

Some kernels write every call's output to the same memory, or to a few buffers in turn.
"""

from __future__ import annotations

from typing import Any

import torch

from sandbox.protocol.arena import describe

SAMPLE_SIZE = 15_013
"""Minimum number of elements that are compared in one output; at most twice as many are.

One thread can compare that many, so several runners do not wait for each other. It is a prime: a power of two would
sample only one column of many matrices.
"""
MAX_COPIED = 1 << 16
"""Maximum number of elements of an output that is copied to the host whole, which loads no kernel on the device."""
MIN_DIFFERENT_FRACTION, RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE = 0.1, 0.1, 1e-3
"""Two outputs differ if a tenth of their elements differ by more than a tenth of their size.

Rounding or another order of sums from call to call stays below both.
"""


class OutputAliasing:
    """Records the memory of all outputs.

    It keeps a reference to each output, so that an address repeats only if the kernel reuses memory.
    """

    def __init__(self, arena: torch.Tensor) -> None:
        self.memory_reused = False
        self._all_outside_arena = True
        self._first: list[torch.Tensor] | None = None
        self._arena = _byte_range(arena)
        self._ranges: list[tuple[int, int]] = []
        # This process makes the tensor for a number. Without this reference, the next one might get the same memory.
        self._held: list[torch.Tensor] = []

    def note(self, outputs: list[torch.Tensor]) -> None:
        """Records one call's outputs, right after the call: the next replay of a CUDA graph overwrites them.

        An output in the arena is an argument, so its memory does not count as reused.
        """
        ranges = [_byte_range(tensor) for tensor in outputs if tensor.layout == torch.strided]
        outside = [byte_range for byte_range in ranges if not _overlap(byte_range, self._arena)]
        self.memory_reused |= any(_overlap(byte_range, earlier) for byte_range in outside for earlier in self._ranges)
        self._first = self._first or outputs
        self._all_outside_arena &= len(outside) == len(outputs)
        self._ranges += outside
        self._held += outputs

    @property
    def held_bytes(self) -> int:
        """Bytes of the outputs so far."""
        return sum(end - start for start, end in self._ranges)

    def to_wire(self, last: list[torch.Tensor]) -> dict[str, Any]:
        """The result for all calls, as fields of a reply; `last` are the outputs of the last call."""
        return {"reuses_memory": self.memory_reused, "first_call_differs": self._first_differs(last)}

    def _first_differs(self, last: list[torch.Tensor]) -> bool | None:
        """Whether the first call's outputs differ from the last one's; None if they cannot be compared."""
        first = self._first or []
        if (
            self.memory_reused
            or not self._all_outside_arena
            or [one.shape for one in first] != [one.shape for one in last]
        ):
            return None
        return any(_differ(*pair) for pair in zip(first, last, strict=True))


def _byte_range(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses of the first byte and of the end."""
    return tensor.data_ptr(), tensor.data_ptr() + describe(tensor).span


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two outputs for the same inputs differ. Integers never do: rounding may change them."""
    if not one.is_floating_point() or one.dtype != other.dtype or one.element_size() < 2 or one.numel() == 0:
        return False
    if one.numel() > MAX_COPIED and not (one.is_contiguous() and other.is_contiguous()):
        return False  # Sampling it would copy all of it.
    first_sample, last_sample = _sample(one), _sample(other)
    size = last_sample.abs().nan_to_num(0.0, 0.0, 0.0)
    allowed = RELATIVE_TOLERANCE * torch.maximum(size, size.square().mean().sqrt()) + ABSOLUTE_TOLERANCE
    close = (
        (first_sample == last_sample)
        | (first_sample.isnan() & last_sample.isnan())
        | ((first_sample - last_sample).abs() <= allowed)
    )
    return float(close.to(torch.float64).mean()) < 1 - MIN_DIFFERENT_FRACTION


def _sample(output: torch.Tensor) -> torch.Tensor:
    """A sample, on the host: comparing on a device would load a dozen kernels, in 0.2 s (docs/measurements.md)."""
    row = (output.detach().cpu() if output.numel() <= MAX_COPIED else output.detach()).reshape(-1)
    step = max(1, row.numel() // SAMPLE_SIZE) | 1  # Odd: it rarely divides the length of a row.
    return row[::step].cpu().to(torch.float64)
