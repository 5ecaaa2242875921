"""Derives advice from hardware counters: rules that name a problem, a remedy and the figures behind them.

A good kernel gets no complaint: at a ceiling the advice only names the ceiling. Rules about waste come before rules
about ceilings, because a memory that is busy with useless bytes is not well used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from profiling.ncu.aggregate import rounded
from profiling.ncu.kernel_summary import BUSY_PERCENT, KernelCounters

SHORT_US = 5.0
"""Maximum time of a launch-bound kernel, in µs: starting and draining take most of it, and percentages are noise."""
IDLE_SHARE = 0.25
"""Minimum share of multiprocessors without a block, for a grid that is too small."""
MINOR_SHARE = 0.01
"""Minimum share of the call's time for a kernel to get advice."""
CEILING_PERCENT = 75.0
"""Minimum percentage of a unit's peak that counts as its ceiling. A plain copy gets 82 % of an H200's DRAM, and cuBLAS
90 % of its tensor cores (docs/measurements.md)."""
SPILL_PERCENT = 1.0
"""Minimum percentage of instructions that spill; fewer spills are outside of loops."""
WASTE_PERCENT = 33.0
"""Minimum percentage of wasted sectors or wavefronts. Unaligned rows alone waste up to a fifth (4 sectors become 5)."""
BUSY_MEMORY_PERCENT = 40.0
"""Minimum use of the memory system, in % of its peak, for waste to cost time (unless warps wait for it)."""
WAITING_PERCENT = 30.0
"""Minimum percentage of a warp's time that it waits for one thing, for this to limit the kernel."""
CONFLICT_WAYS = 2.0
THREADS = 24.0
"""Minimum number of active threads of 32 in a warp; below it more than a quarter of the lanes idle."""
LOW_OCCUPANCY_PERCENT = 25.0
"""Minimum percentage of a multiprocessor's warps that fit: 16 of 64, four a scheduler, hide little memory latency."""
MAX_ADVICE = 16

_SHARED_WAITS = ("short_scoreboard", "mio_throttle")
_GLOBAL_WAITS = ("long_scoreboard", "lg_throttle")

_LOWER = {
    "registers": "use fewer registers a thread (smaller tiles, less unrolling, __launch_bounds__)",
    "shared_memory": "use less shared memory a block (smaller tiles, fewer stages, a narrower dtype)",
    "blocks": "use more threads a block (128 to 256)",
    "warps": "use a block size that divides a multiprocessor's warps (128, 256 or 512 threads)",
}
_WAITING = {
    "long_scoreboard": "for global or local memory: more independent loads a thread, wider ones, prefetching",
    "short_scoreboard": "for shared memory or special functions: fewer or wider accesses, other functions",
    "mio_throttle": "in the queue to shared memory and special functions: fewer, wider accesses",
    "lg_throttle": "in the queue to global memory: fewer, wider accesses",
    "barrier": "at __syncthreads(): fewer barriers, smaller blocks, the same work for every warp",
    "wait": "for a fixed latency of its own instructions: more independent work a thread, more warps",
    "math_pipe_throttle": "for a pipe that is taken: a different mix of instructions",
    "no_instruction": "for instructions to be fetched: shorter code, less unrolling",
    "branch_resolving": "for branches: fewer of them in loops",
    "drain": "for its last stores: fewer, wider stores at the end",
    "sleeping": "in __nanosleep() or a spin on a barrier",
}


@dataclass(frozen=True)
class Advice:
    """One rule that applies to one kernel: its message, and the figures behind it (see KernelCounters)."""

    kernel: str
    rule: str
    message: str
    figures: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        return {"kernel": self.kernel, "rule": self.rule, "message": self.message, "figures": rounded(self.figures)}


_Match = tuple[str, str, dict[str, float]] | None
"""The rule's name, message and figures; None if the rule does not apply."""


def advice(kernels: Sequence[KernelCounters]) -> list[Advice]:
    """The advice about these kernels, those with the most time first."""
    advices = []
    for kernel in kernels:
        if kernel.share is None or kernel.share >= MINOR_SHARE or len(kernels) == 1:
            advices += [Advice(kernel.name, *match) for match in _matches(kernel)]
    return advices[:MAX_ADVICE]


def _matches(kernel: KernelCounters) -> list[tuple[str, str, dict[str, float]]]:
    """The matching rules: launch-bound alone, since short launches make other figures noise; else waste; else a
    bound."""
    if short := _launch_bound(kernel):
        return [short]
    waste = [match for match in (rule(kernel) for rule in _WASTE) if match]
    return waste or [match for match in (rule(kernel) for rule in _BOUNDS) if match][:1]


def _launch_bound(kernel: KernelCounters) -> _Match:
    if kernel.time_us is None or kernel.time_us / kernel.launches >= SHORT_US:
        return None
    each = kernel.time_us / kernel.launches
    message = (
        f"launch-bound: {each:.2g} µs a launch is about what starting a kernel takes, with {_blocks(kernel)}; fuse it "
        "with its neighbours, or give one launch more to do"
    )
    return "launch_bound", message, {"time_us_a_launch": each, "launches": kernel.launches, "blocks": kernel.blocks}


def _grid_too_small(kernel: KernelCounters) -> _Match:
    there = kernel.multiprocessors
    if not there or kernel.blocks > (1 - IDLE_SHARE) * there:
        return None
    idle = 100 * (1 - kernel.blocks / there)
    message = (
        f"the grid is too small: {_blocks(kernel)} for {there:.0f} multiprocessors, so {idle:.0f} % of the "
        "card idles; use smaller tiles, or split the reduction among blocks (split-K)"
    )
    return "grid_too_small", message, {"blocks": kernel.blocks, "multiprocessors": there}


def _blocks(kernel: KernelCounters) -> str:
    return "one block" if kernel.blocks == 1 else f"{kernel.blocks} blocks"


def _spilling(kernel: KernelCounters) -> _Match:
    percent, requests = kernel.spills["percent"], kernel.spills["requests"]
    if percent is None or requests is None or percent < SPILL_PERCENT:
        return None
    sure = kernel.spills["counter"] == "register_spills"
    what = "move registers to and from" if sure else "access"
    maybe = "" if sure else " (or of arrays indexed by a variable: `spill_store_bytes` of the build tells them apart)"
    message = (
        f"spilling: {percent:.0f} % of the instructions {what} local memory{maybe}; allow more registers (a lower "
        "minimum of blocks in __launch_bounds__, a higher --maxrregcount), or keep less: smaller tiles, less unrolling"
    )
    return "spilling", message, {"spill_percent": percent, **_present(registers=kernel.registers)}


def _uncoalesced(kernel: KernelCounters) -> _Match:
    excess = kernel.coalescing["excess_percent"]
    if excess is None or excess < WASTE_PERCENT or not _memory_matters(kernel, _GLOBAL_WAITS):
        return None
    sectors = kernel.coalescing["sectors_per_load_request"]
    a_load = f" ({sectors:.3g} sectors a load)" if sectors else ""
    message = (
        f"uncoalesced: {excess:.0f} % of the 32-byte sectors that global accesses ask for would not be needed{a_load}; "
        "let neighbouring threads touch neighbouring addresses: change the layout or the order of the loops, or turn "
        "tiles in shared memory"
    )
    return "uncoalesced", message, {"excess_percent": excess, **_present(sectors_per_load_request=sectors)}


def _bank_conflicts(kernel: KernelCounters) -> _Match:
    ways, excess = kernel.bank_conflicts["n_way"], kernel.bank_conflicts["excess_percent"]
    if ways is None or excess is None or ways < CONFLICT_WAYS or not _memory_matters(kernel, _SHARED_WAITS):
        return None
    message = (
        f"bank conflicts: accesses to shared memory take {ways:.3g} times the turns that they need ({ways:.3g}-way); "
        "pad the rows by one element (tile[32][33]), or permute the columns (swizzling)"
    )
    return "bank_conflicts", message, {"n_way": ways, "excess_percent": excess}


def _divergent(kernel: KernelCounters) -> _Match:
    threads = kernel.instructions["threads_per_instruction"]
    if threads is None or threads >= THREADS or _over(kernel.memory["dram_percent"], CEILING_PERCENT):
        return None
    message = (
        f"divergent: {threads:.3g} of 32 threads work in an instruction; let the threads of a warp take the same "
        "branch and make as many turns: sort the work, branch by warp, use blocks of a multiple of 32 threads"
    )
    return "divergent", message, {"threads_per_instruction": threads}


def _low_occupancy(kernel: KernelCounters) -> _Match:
    """It does not apply to kernels that are busy with a low occupancy by design, as large matrix products are."""
    percent, limit = kernel.occupancy["theoretical_percent"], kernel.occupancy["limited_by"]
    if percent is None or limit is None or percent >= LOW_OCCUPANCY_PERCENT or _busy(kernel, BUSY_PERCENT):
        return None
    by = {"registers": kernel.registers, "shared_memory": sum(one or 0.0 for one in kernel.shared_bytes.values())}
    each = {"registers": "{:.0f} registers a thread", "shared_memory": "{:.0f} bytes of shared memory a block"}
    what = f" ({each[limit].format(by[limit])})" if by.get(limit) else ""
    message = (
        f"low occupancy: {percent:.3g} % of a multiprocessor's warps fit, limited by {limit.replace('_', ' ')}{what}, "
        f"and neither arithmetic nor memory is busy; {_LOWER[limit]}"
    )
    figures = _present(theoretical_percent=percent, achieved_percent=kernel.occupancy["achieved_percent"])
    return "low_occupancy", message, {**figures, f"block_limit_{limit}": kernel.occupancy["block_limits"][limit]}


def _memory_ceiling(kernel: KernelCounters) -> _Match:
    percent, rate = kernel.memory["dram_percent"], kernel.memory["dram_bytes_per_s"]
    if percent is None or percent < CEILING_PERCENT:
        return None
    at = f" ({rate / 1e12:.3g} TB/s)" if rate else ""
    message = f"memory-bound: at {percent:.0f} % of the DRAM's peak{at}, the ceiling; only moving fewer bytes is faster"
    return "memory_ceiling", message, _present(dram_percent=percent, dram_bytes_per_s=rate)


def _tensor_ceiling(kernel: KernelCounters) -> _Match:
    percent = kernel.tensor_percent
    if percent is None or percent < BUSY_PERCENT:
        return None
    at_peak = (
        ", the ceiling; only fewer operations or a narrower dtype are faster" if percent >= CEILING_PERCENT else ""
    )
    message = f"tensor cores: busy {percent:.0f} % of the time{at_peak}"
    return "tensor_cores", message, _present(tensor_percent=percent, flops_per_s=kernel.roofline["flops_per_s"])


def _compute_ceiling(kernel: KernelCounters) -> _Match:
    percent, memory = kernel.speed_of_light["sm_percent"], kernel.speed_of_light["memory_percent"]
    if percent is None or percent < CEILING_PERCENT or _over(memory, percent):
        return None
    pipe, busy = _busiest_pipe(kernel)
    message = (
        f"compute-bound: the multiprocessors are at {percent:.0f} % of their peak"
        + (f", most in the {pipe} pipe ({busy:.0f} %)" if pipe else "")
        + "; only fewer or cheaper instructions are faster"
    )
    return "compute_ceiling", message, {"sm_percent": percent, **({f"{pipe}_percent": busy} if pipe else {})}


def _cache_ceiling(kernel: KernelCounters) -> _Match:
    percent = kernel.speed_of_light["memory_percent"]
    if percent is None or percent < CEILING_PERCENT:
        return None
    levels = {"L2": kernel.memory["l2_percent"] or 0.0, "L1 or shared memory": kernel.memory["l1_percent"] or 0.0}
    where = max(levels, key=lambda level: levels[level])
    message = (
        f"cache-bound: {where} is at {percent:.0f} % of its peak, and the DRAM is not; keep more in registers, and use "
        "each byte that is loaded more often"
    )
    return "cache_ceiling", message, _present(memory_percent=percent, l2_percent=levels["L2"])


def _latency_bound(kernel: KernelCounters) -> _Match:
    sm, memory = kernel.speed_of_light["sm_percent"], kernel.speed_of_light["memory_percent"]
    if sm is None or memory is None or not kernel.stalls or _busy(kernel, BUSY_PERCENT):
        return None
    if kernel.time_us is not None and kernel.time_us / kernel.launches < 2 * SHORT_US:
        return None  # Half of the time is starting and draining, which no change of the kernel shortens.
    most = next((stall for stall in kernel.stalls if stall["reason"] != "not_selected"), None)
    if most is None:
        return None
    reason, percent = most["reason"], most["percent"]
    message = (
        f"latency-bound: neither arithmetic ({sm:.0f} %) nor memory ({memory:.0f} %) is busy; a warp spends "
        f"{percent:.0f} % of its time on {reason}: waiting {_WAITING.get(reason, 'for that (see the guide)')}"
    )
    return "latency_bound", message, {"sm_percent": sm, "memory_percent": memory, f"{reason}_percent": percent}


_Rule = Callable[[KernelCounters], _Match]
_WASTE: tuple[_Rule, ...] = (
    _grid_too_small, _spilling, _uncoalesced, _bank_conflicts, _divergent, _low_occupancy,
)  # fmt: skip
_BOUNDS: tuple[_Rule, ...] = (_memory_ceiling, _tensor_ceiling, _compute_ceiling, _cache_ceiling, _latency_bound)


def _memory_matters(kernel: KernelCounters, waits: Sequence[str]) -> bool:
    waited = sum(stall["percent"] for stall in kernel.stalls if stall["reason"] in waits)
    return _over(kernel.speed_of_light["memory_percent"], BUSY_MEMORY_PERCENT) or waited >= WAITING_PERCENT


def _busy(kernel: KernelCounters, percent: float) -> bool:
    return any(_over(figure, percent) for figure in kernel.speed_of_light.values())


def _busiest_pipe(kernel: KernelCounters) -> tuple[str, float]:
    busy_pipes = {pipe: busy for pipe, busy in kernel.instructions["pipes"].items() if busy}
    return max(busy_pipes.items(), key=lambda item: item[1], default=("", 0.0))


def _over(figure: float | None, limit: float) -> bool:
    return figure is not None and figure >= limit


def _present(**figures: float | None) -> dict[str, float]:
    return {name: figure for name, figure in figures.items() if figure is not None}
