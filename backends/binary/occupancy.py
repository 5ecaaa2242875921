"""Computes theoretical occupancy: the share of a multiprocessor's warps that a kernel's blocks fill, and the limiting
factor.

Limits by compute capability and the granularities of allocation come from the CUDA C++ Programming Guide, "Compute
Capabilities" (13.0), and from the occupancy calculator in CUDA's `cuda_occupancy.h`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

WARP = 32
REGISTERS = 65536
"""Registers of a multiprocessor; a block may use all of them, a thread 255."""
REGISTER_UNIT = 256
"""Registers allocated to a warp at once, so a thread gets a multiple of 8."""
WARP_UNIT = 4
"""The four partitions of a multiprocessor each allocate registers to their own warps."""
SHARED_UNIT = 128
RESERVED_SHARED = 1024
"""Bytes of shared memory that the system takes from each block."""


@dataclass(frozen=True)
class Multiprocessor:
    """The limits of one multiprocessor: warps, blocks, and KiB of shared memory for all blocks."""

    warps: int
    blocks: int
    shared_kib: int


MULTIPROCESSORS = {
    80: Multiprocessor(64, 32, 164),
    86: Multiprocessor(48, 16, 100),
    87: Multiprocessor(48, 16, 164),
    88: Multiprocessor(48, 16, 100),
    89: Multiprocessor(48, 24, 100),
    90: Multiprocessor(64, 32, 228),
    100: Multiprocessor(64, 32, 228),
    103: Multiprocessor(64, 32, 228),
    110: Multiprocessor(48, 24, 228),
    120: Multiprocessor(48, 24, 100),
    121: Multiprocessor(48, 24, 100),
}


def occupancy(arch: str, threads: int, registers: int, shared: int) -> dict[str, Any] | None:
    """The occupancy of blocks with that many threads, and bytes of static and dynamic shared memory; JSON-ready.

    None for an architecture that is not in the table, or a block that cannot be launched at all. `limited_by` names the
    resource that one more block would exceed: registers, shared_memory, warps or blocks.
    """
    number = re.sub(r"\D", "", arch)
    held = MULTIPROCESSORS.get(int(number)) if number else None
    if held is None or not 1 <= threads <= 1024:
        return None
    warps = -(-threads // WARP)
    limits = {"warps": held.warps // warps, "blocks": held.blocks}
    if registers:
        of_a_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
        limits["registers"] = REGISTERS // of_a_warp // WARP_UNIT * WARP_UNIT // warps
    of_a_block = -(-(shared + RESERVED_SHARED) // SHARED_UNIT) * SHARED_UNIT
    limits["shared_memory"] = held.shared_kib * 1024 // of_a_block
    blocks = min(limits.values())
    if blocks == 0:
        return None
    limited_by = min(limits, key=lambda limit: limits[limit])
    return {
        "theoretical": blocks * warps / held.warps,
        "blocks_per_multiprocessor": blocks,
        "warps_per_multiprocessor": blocks * warps,
        "limited_by": limited_by,
        "threads_per_block": threads,
        "shared_bytes": shared,
    }
