"""Summarises the hardware counters of each kernel, in the terms of docs/DEVICE_METRICS_GUIDE.md.

A figure that ncu did not give is None, never 0. All of them come from the submission's own process tree and are
advisory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from profiling.ncu.aggregate import CounterTotals, ratio, rounded
from profiling.ncu.csv_report import Launch
from profiling.ncu.metrics import (
    DRAM_BYTES,
    FLOPS,
    LATENCY,
    PIPES,
    SECTORS,
    SECTORS_IDEAL,
    STALLS,
    TENSOR_SOURCES,
    accesses,
    of_peak,
    stalled,
    tensor_operations,
    thread_operations,
)

Figure = float | None

BUSY_PERCENT = 60.0
"""Minimum percentage of a peak that bounds a kernel; below it waiting does (the limit of ncu's rule SOLBottleneck)."""

_LIMITS = {"warps": "warps", "blocks": "blocks", "registers": "registers", "shared_memory": "shared_mem"}
"""ncu's names of the occupancy limits, in the order of preference where several are equal: full warps are no
problem."""
MAX_STALLS = 8
"""Maximum number of stall reasons in a summary."""
STALL_PERCENT = 1.0
"""Minimum percentage of a stall reason in a summary."""


@dataclass(frozen=True)
class KernelCounters:
    """One kernel's figures over its launches in a call. Groups are dicts of figures, for they are only passed on."""

    name: str
    launches: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    time_us: Figure
    share: Figure
    multiprocessors: Figure
    speed_of_light: dict[str, Figure]
    memory: dict[str, Figure]
    roofline: dict[str, Any]
    occupancy: dict[str, Any]
    stalls: list[dict[str, Any]]
    instructions: dict[str, Any]
    tensor_percent: Figure
    registers: Figure
    spills: dict[str, Any]
    shared_bytes: dict[str, Figure]
    bank_conflicts: dict[str, Figure]
    coalescing: dict[str, Figure]
    requested_metrics: dict[str, dict[str, Any]]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    def to_dict(self) -> dict[str, Any]:
        """The summary as it stands in a result; JSON-ready."""
        fields = {key: value for key, value in vars(self).items() if key != "multiprocessors"}
        return {key: rounded(value) for key, value in fields.items()}


def kernel_counters(launches: Sequence[Launch], requested: Sequence[str] = ()) -> list[KernelCounters]:
    """The kernels of a call by name, those with the most time first; `requested` are metrics to pass on unchanged."""
    by_name: dict[str, list[Launch]] = {}
    for launch in launches:
        by_name.setdefault(launch.kernel, []).append(launch)
    groups = [CounterTotals(group) for group in by_name.values()]
    seconds = [group.seconds for group in groups]
    timed = [one for one in seconds if one is not None]
    all_seconds = sum(timed) if len(timed) == len(seconds) else None
    kernels = [_kernel(group, all_seconds, requested) for group in groups]
    return sorted(kernels, key=lambda kernel: kernel.time_us or 0.0, reverse=True)


def _kernel(of: CounterTotals, all_seconds: Figure, requested: Sequence[str]) -> KernelCounters:
    memory = _memory(of)
    speed = {
        "sm_percent": of.mean(of_peak("sm__throughput")),
        "memory_percent": of.mean(of_peak("gpu__compute_memory_throughput")),
    }
    pipes = {pipe: of.mean(of_peak(counter)) for pipe, counter in PIPES.items()}
    executed = of.total("smsp__inst_executed.sum")
    return KernelCounters(
        name=of.longest.kernel,
        launches=len(of.launches),
        grid=of.longest.grid,
        block=of.longest.block,
        time_us=_times(of.seconds, 1e6),
        share=ratio(of.seconds, all_seconds),
        multiprocessors=of.of_longest("launch__sm_count"),
        speed_of_light=speed,
        memory=memory,
        roofline=_roofline(of, memory, speed),
        occupancy=_occupancy(of),
        stalls=_stalls(of),
        instructions={
            "executed": executed,
            "per_cycle": of.mean("sm__inst_executed.avg.per_cycle_active"),
            "threads_per_instruction": of.mean("smsp__thread_inst_executed_per_inst_executed.ratio"),
            "pipes": pipes,
        },
        tensor_percent=pipes["tensor"],
        registers=of.of_longest("launch__registers_per_thread"),
        spills=_spills(of, executed),
        shared_bytes={
            "static": of.of_longest("launch__shared_mem_per_block_static"),
            "dynamic": of.of_longest("launch__shared_mem_per_block_dynamic"),
        },
        bank_conflicts=_bank_conflicts(of),
        coalescing={
            "sectors_per_load_request": sectors_a_request(of, "ld"),
            "sectors_per_store_request": sectors_a_request(of, "st"),
            "excess_percent": _excess(of.total(SECTORS), of.total(SECTORS_IDEAL)),
        },
        requested_metrics={
            # Sums of counts, weighted means of all others.
            name: {"value": (of.total if name.endswith(".sum") else of.mean)(name), "unit": of.longest.units.get(name)}
            for name in requested
        },
    )


def _memory(of: CounterTotals) -> dict[str, Figure]:
    moved = dram_bytes(of)
    return {
        "dram_percent": of.mean(of_peak("gpu__dram_throughput")),
        "dram_bytes": moved,
        "dram_bytes_per_s": ratio(moved, of.seconds),
        "l2_percent": of.mean(of_peak("lts__throughput")),
        "l2_hit_percent": of.mean("lts__t_sector_hit_rate.pct"),
        "l1_percent": of.mean(of_peak("l1tex__throughput")),
        "l1_hit_percent": of.mean("l1tex__t_sector_hit_rate.pct"),
    }


def dram_bytes(of: CounterTotals) -> Figure:
    """Bytes read from and written to the device's memory."""
    return of.summed(DRAM_BYTES)


def operations(of: CounterTotals) -> Figure:
    """Floating-point operations of all launches (on tensor cores integer ones too); None if the count is unknown.

    Cards have different tensor cores: a missing counter of tensor cores counts as 0, unless all of them are missing.
    """
    counts = []
    for launch in of.launches:
        cycles = launch.values.get("smsp__cycles_elapsed.avg")
        rates = [launch.values.get(thread_operations(name)) for name in FLOPS]
        if cycles is None or any(rate is None for rate in rates):
            return None
        vector = cycles * sum(weight * (rate or 0.0) for weight, rate in zip(FLOPS.values(), rates, strict=True))
        tensor = [launch.values.get(tensor_operations(source)) for source in TENSOR_SOURCES]
        if all(count is None for count in tensor):
            return None
        counts.append(vector + sum(count or 0.0 for count in tensor))
    return sum(counts)


def _roofline(of: CounterTotals, memory: dict[str, Figure], speed: dict[str, Figure]) -> dict[str, Any]:
    """The position under the roofs of device memory and arithmetic, without caches and shared memory."""
    flops = operations(of)
    dram, sm = memory["dram_percent"], speed["sm_percent"]
    bound = None
    if dram is not None and sm is not None:
        bound = "neither" if max(dram, sm) < BUSY_PERCENT else "memory" if dram >= sm else "compute"
    return {
        "flops": flops,
        "flops_per_s": ratio(flops, of.seconds),
        "flops_per_byte": ratio(flops, memory["dram_bytes"]),
        "percent_of_peak": None if dram is None or sm is None else max(dram, sm),
        "bound": bound,
    }


def _occupancy(of: CounterTotals) -> dict[str, Any]:
    blocks = {name: of.of_longest(f"launch__occupancy_limit_{ncu_name}") for name, ncu_name in _LIMITS.items()}
    counted = {name: count for name, count in blocks.items() if count is not None}
    return {
        "achieved_percent": of.mean("sm__warps_active.avg.pct_of_peak_sustained_active"),
        "theoretical_percent": of.mean("sm__maximum_warps_per_active_cycle_pct"),
        "block_limits": blocks,
        "limited_by": min(counted, key=lambda name: counted[name]) if len(counted) == len(blocks) else None,
    }


def _stalls(of: CounterTotals) -> list[dict[str, Any]]:
    shares = {reason: stall_percent(of, reason) for reason in STALLS if reason != "selected"}
    ranked = sorted(((share, reason) for reason, share in shares.items() if share is not None), reverse=True)
    return [{"reason": reason, "percent": share} for share, reason in ranked[:MAX_STALLS] if share >= STALL_PERCENT]


def stall_percent(of: CounterTotals, reason: str) -> Figure:
    """The percentage of a warp's time that it waits for that reason."""
    return ratio(of.mean(stalled(reason)), of.mean(LATENCY), 100.0)


def _spills(of: CounterTotals, executed: Figure) -> dict[str, Any]:
    """Instructions that spill registers; without ncu's sections, all instructions on local memory. `counter` says
    which.

    Local memory also holds arrays whose index the compiler does not know.
    """
    kinds = {
        "register_spills": of.total("sass__inst_executed_register_spilling"),
        "local_memory": of.summed(f"smsp__sass_inst_executed_op_local_{op}.sum" for op in ("ld", "st")),
    }
    kind, requests = next(((kind, count) for kind, count in kinds.items() if count is not None), (None, None))
    return {"requests": requests, "percent": ratio(requests, executed, 100.0), "counter": kind}


def _bank_conflicts(of: CounterTotals) -> dict[str, Figure]:
    """Bank conflicts by wavefronts: wide accesses, which always need several wavefronts, do not count as conflicts."""
    wavefronts, ideal = of.total("memory_l1_wavefronts_shared"), of.total("memory_l1_wavefronts_shared_ideal")
    return {"n_way": ratio(wavefronts, ideal), "excess_percent": _excess(wavefronts, ideal)}


def sectors_a_request(of: CounterTotals, op: str) -> Figure:
    """32-byte sectors that one request of a warp needs; 4 where 32 lanes read neighbouring words."""
    return ratio(of.total(accesses("sectors", op)), of.total(accesses("requests", op)))


def _excess(done: Figure, ideal: Figure) -> Figure:
    return None if done is None or ideal is None else ratio(max(done - ideal, 0.0), done, 100.0)


def _times(figure: Figure, scale: float) -> Figure:
    return None if figure is None else figure * scale
