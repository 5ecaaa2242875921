"""The counters of a call under the names of the original service, for its clients.

Each figure covers all kernels of a call: sums of counts, means of rates weighted by duration, and launch parameters of
the longest launch. Figures that ncu did not give are omitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from profiling.ncu.aggregate import DURATION, CounterTotals, ratio, rounded
from profiling.ncu.csv_report import Launch
from profiling.ncu.kernel_summary import dram_bytes, operations, sectors_a_request, stall_percent
from profiling.ncu.metrics import PIPES, SECTORS, SECTORS_IDEAL, of_peak

_Reading = Callable[[CounterTotals], float | str | None]


def _mean(name: str) -> _Reading:
    return lambda of: of.mean(name)


def _total(name: str) -> _Reading:
    return lambda of: of.total(name)


def _longest(name: str) -> _Reading:
    return lambda of: of.of_longest(name)


def _stall(reason: str) -> _Reading:
    return lambda of: stall_percent(of, reason)


def _excessive(of: CounterTotals) -> float | None:
    sectors, ideal = of.total(SECTORS), of.total(SECTORS_IDEAL)
    return None if sectors is None or ideal is None else max(sectors - ideal, 0.0)


def _sectors_a_request(op: str) -> _Reading:
    return lambda of: sectors_a_request(of, op)


def _unit_if_measured(name: str, unit: str) -> _Reading:
    """A reading that gives the unit if the figure exists."""
    return lambda of: None if of.total(name) is None else unit


_DRAM = _mean(of_peak("gpu__dram_throughput"))
_MEMORY = _mean(of_peak("gpu__compute_memory_throughput"))
_SM = _mean(of_peak("sm__throughput"))
_IPC = _mean("sm__inst_executed.avg.per_cycle_active")
_ISSUE_ACTIVE = _mean(of_peak("sm__issue_active"))
_WAVES = _longest("launch__waves_per_multiprocessor")
_CYCLES = "gpc__cycles_elapsed.max"
_LIMITS = {
    f"occupancy_limit_{what}": _longest(f"launch__occupancy_limit_{what}")
    for what in ("blocks", "registers", "shared_mem", "warps")
}


def _shared_bytes(of: CounterTotals) -> float | None:
    parts = [of.of_longest(f"launch__shared_mem_per_block_{kind}") for kind in ("static", "dynamic")]
    values = [part for part in parts if part is not None]
    return sum(values) if len(values) == len(parts) else None


CATEGORIES: Mapping[str, Mapping[str, _Reading]] = {
    "speed_of_light": {
        "compute_memory_throughput_pct": _MEMORY,
        "compute_throughput_pct": _SM,
        "sm_throughput_pct": _SM,
        "gpu_dram_throughput_pct": _DRAM,
        "memory_throughput_pct": _MEMORY,
        "dram_throughput_pct": _DRAM,
    },
    "detailed_metrics": {
        "l1_hit_rate_pct": _mean("l1tex__t_sector_hit_rate.pct"),
        "l2_hit_rate_pct": _mean("lts__t_sector_hit_rate.pct"),
        "warp_occupancy_pct": _mean("sm__warps_active.avg.pct_of_peak_sustained_active"),
        "sm_active_cycles_pct": lambda of: ratio(of.total("sm__cycles_active.avg"), of.total(_CYCLES), 100.0),
        "instructions_per_cycle": _IPC,
        "waves_per_sm": _WAVES,
    },
    "memory_metrics": {
        "dram_avg_bandwidth_gb_s": lambda of: ratio(of.mean("dram__bytes.avg.per_second"), 1e9),
        "dram_total_bandwidth_gb_s": lambda of: ratio(dram_bytes(of), of.seconds, 1e-9),
        "dram_active_cycles_pct": _mean(of_peak("dram__cycles_active")),
        "l1_writeback_active_pct": _mean(of_peak("l1tex__lsu_writeback_active")),
        "l1_read_sectors_pct": _mean(of_peak("l1tex__m_xbar2l1tex_read_sectors")),
        "l2_throughput_pct": _mean(of_peak("lts__throughput")),
    },
    "compute_metrics": {
        **{
            f"{pipe}_pipe_utilization_pct": _mean(of_peak(PIPES[pipe], "active"))
            for pipe in ("fma", "fp64", "alu", "xu", "tensor")
        },
        "instructions_per_cycle": _IPC,
        **_LIMITS,
        "registers_per_thread": _longest("launch__registers_per_thread"),
    },
    "pipeline_metrics": {
        **{f"{pipe}_pipe_active_pct": _mean(of_peak(PIPES[pipe], "active")) for pipe in ("fma", "alu", "tensor")},
        "shared_pipe_active_pct": _mean(of_peak("sm__pipe_shared_cycles_active", "active")),
        "fp64_pipe_active_pct": _mean(of_peak(PIPES["fp64"], "active")),
        "sm_issue_active_pct": _ISSUE_ACTIVE,
    },
    "occupancy_metrics": {
        **_LIMITS,
        "waves_per_sm": _WAVES,
        "block_size": _longest("launch__block_size"),
        "grid_size": _longest("launch__grid_size"),
        "shared_mem_per_block": _shared_bytes,
    },
    "stall_metrics": {
        f"stall_{reason}_pct": _stall(reason)
        for reason in ("long_scoreboard", "short_scoreboard", "barrier", "not_selected")
    },
    "scheduler_metrics": {
        "warps_eligible_per_cycle": _mean("smsp__warps_eligible.avg.per_cycle_active"),
        "inst_issued_per_cycle": _mean("smsp__issue_active.avg.per_cycle_active"),
        "issue_active_pct": _ISSUE_ACTIVE,
    },
    "access_pattern_metrics": {
        "l1_load_sectors_per_req": _sectors_a_request("ld"),
        "l1_store_sectors_per_req": _sectors_a_request("st"),
        "l2_theoretical_sectors_global": _total(SECTORS),
        "l2_theoretical_sectors_global_ideal": _total(SECTORS_IDEAL),
        "l2_theoretical_sectors_global_excessive": _excessive,
        "l2_excess_frac": lambda of: ratio(_excessive(of), of.total(SECTORS)),
        "shared_bank_conflicts_load_sum": _total("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"),
        "shared_bank_conflicts_store_sum": _total("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"),
    },
    "roofline_metrics": {
        "flop_count_total": operations,
        "dram_bytes_sum": dram_bytes,
        "arithmetic_intensity": lambda of: ratio(operations(of), dram_bytes(of)),
        "gflops": lambda of: ratio(operations(of), of.seconds, 1e-9),
    },
    "timing_metrics": {
        "gpu_time_duration_sum": lambda of: None if of.seconds is None else of.seconds * 1e9,
        "gpu_time_duration_unit": _unit_if_measured(DURATION, "nsecond"),
        "gpu_time_duration_seconds": _total(DURATION),
        "gpc_cycles_elapsed_max": _total(_CYCLES),
        "gpc_cycles_elapsed_unit": _unit_if_measured(_CYCLES, "cycle"),
    },
}
"""The original service's names. This service chose the metric behind each name that ncu no longer has."""


def original_metrics(launches: Sequence[Launch]) -> dict[str, dict[str, Any]]:
    """The figures of a call by category; categories without a figure are omitted."""
    of = CounterTotals(launches)
    read = {
        category: {name: value for name, reading in fields.items() if (value := reading(of)) is not None}
        for category, fields in CATEGORIES.items()
    }
    return {category: rounded(fields) for category, fields in read.items() if fields}
