"""Chooses the metrics of Nsight Compute for a level, and builds its command line.

The names are those of ncu 2025.3 (compute capability 8.0 and newer). ncu computes `derived__*` metrics from its
sections, and does not take them by name (Nsight Compute, Source Page, Pre-Defined Source Metrics). The basic level
therefore asks for the operands, and profiling/ncu/kernel_summary.py divides them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from domain.device_metrics import Level

LAUNCHES = {Level.BASIC: 64, Level.FULL: 32}
"""Maximum number of profiled launches of a call. ncu repeats each launch for every pass: 24 times at "basic" and 38 at
"full" on an H200 (docs/measurements.md)."""

STALLS = (
    "barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle", "long_scoreboard",
    "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "not_selected", "selected",
    "short_scoreboard", "sleeping", "tex_throttle", "wait",
)  # fmt: skip
"""States of a warp between two instructions, by the name in ncu's metrics. All but `selected` are waiting."""

FLOPS = {
    **dict.fromkeys(("dadd", "dmul", "fadd", "fmul"), 1),
    **dict.fromkeys(("dfma", "ffma", "hadd", "hmul"), 2),
    "hfma": 4,
}
"""Operations of one thread in one instruction. Half-precision instructions count as packed, as in ncu."""

TENSOR_SOURCES = ("bf16_dst_fp32", "fp16", "fp64", "fp8_sparsity_off", "fp8_sparsity_on", "int8", "tf32_dst_fp32")

PIPES = {
    "fma": "sm__pipe_fma_cycles_active",
    "alu": "sm__pipe_alu_cycles_active",
    "tensor": "sm__pipe_tensor_cycles_active",
    "fp64": "sm__pipe_fp64_cycles_active",
    "xu": "sm__inst_executed_pipe_xu",
    "lsu": "sm__inst_executed_pipe_lsu",
}


def stalled(reason: str) -> str:
    """The metric of warps that wait for that reason per issued instruction: cycles of a warp's latency."""
    return f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"


LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
"""Cycles from one instruction of a warp to its next one."""

DRAM_BYTES = ("dram__bytes_read.sum", "dram__bytes_write.sum")
SECTORS = "memory_l2_theoretical_sectors_global"
SECTORS_IDEAL = f"{SECTORS}_ideal"


def accesses(what: str, op: str) -> str:
    """The metric of `requests` or `sectors` of global memory's loads (`ld`) or stores (`st`)."""
    return f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum"


def thread_operations(name: str) -> str:
    """The metric of threads that run that instruction per cycle."""
    return f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum.per_cycle_elapsed"


def tensor_operations(source: str) -> str:
    return f"sm__ops_path_tensor_src_{source}.sum"


def of_peak(counter: str, over: str = "elapsed") -> str:
    """The metric of a counter's average in % of the unit's sustained peak, over elapsed or active cycles."""
    return f"{counter}.avg.pct_of_peak_sustained_{over}"


BASIC = (
    "gpu__time_duration.sum",
    "gpc__cycles_elapsed.max",
    "sm__cycles_active.avg",
    # Speed of light, and the memory's levels.
    of_peak("sm__throughput"),
    of_peak("gpu__compute_memory_throughput"),
    of_peak("gpu__dram_throughput"),
    of_peak("lts__throughput"),
    of_peak("l1tex__throughput"),
    of_peak("dram__cycles_active"),
    *DRAM_BYTES,
    "l1tex__t_sector_hit_rate.pct",
    "lts__t_sector_hit_rate.pct",
    # How global and shared memory are accessed, and spills: counted by instrumented code, in passes of their own.
    *(accesses(what, op) for what in ("requests", "sectors") for op in ("ld", "st")),
    SECTORS,
    SECTORS_IDEAL,
    "memory_l1_wavefronts_shared",
    "memory_l1_wavefronts_shared_ideal",
    # Not sass__inst_executed_register_spilling: ncu gives it with its sections only, and does not say so.
    "smsp__sass_inst_executed_op_local_ld.sum",
    "smsp__sass_inst_executed_op_local_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    # Occupancy and the launch; what begins with `launch__` is known without a pass.
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__maximum_warps_per_active_cycle_pct",
    *(f"launch__occupancy_limit_{what}" for what in ("registers", "shared_mem", "warps", "blocks")),
    "launch__block_size",
    "launch__grid_size",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_dynamic",
    "launch__shared_mem_per_block_static",
    "launch__sm_count",
    "launch__waves_per_multiprocessor",
    # Instructions and pipes.
    "smsp__inst_executed.sum",
    "sm__inst_executed.avg.per_cycle_active",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    "smsp__warps_eligible.avg.per_cycle_active",
    "smsp__issue_active.avg.per_cycle_active",
    of_peak("sm__issue_active"),
    *(of_peak(counter) for counter in PIPES.values()),
    *(of_peak(PIPES[pipe], "active") for pipe in ("fma", "alu", "tensor", "fp64", "xu")),
    # Operations, for the roofline.
    "smsp__cycles_elapsed.avg",
    *(thread_operations(name) for name in FLOPS),
    *(tensor_operations(source) for source in TENSOR_SOURCES),
    # Stalls.
    LATENCY,
    *(stalled(reason) for reason in STALLS),
)
"""Each of them is a column of profiling/ncu/kernel_summary.py or profiling/ncu/legacy_metrics.py."""

PRINTING = ("--csv", "--page", "raw", "--print-units", "base")
"""Arguments with which ncu prints a report for profiling/ncu/csv_report.py."""

_COMPLAINT = re.compile(r"^==ERROR== .*\bmetrics?\b.*$", re.MULTILINE)
_NAME = re.compile(r"(?<![\w.:/])[a-z][a-z0-9]*_[a-z0-9_]*(?:\.[a-z0-9_]+){0,5}(?![\w/])", re.ASCII)


def arguments(level: Level, metrics: Sequence[str] = (), *, without: Collection[str] = ()) -> list[str]:
    """ncu's arguments for profiling at `level`, with `metrics` in addition.

    `without` are names that ncu has refused on this card. The caller adds the program, the report's path and the part
    of the process to profile.
    """
    named = [*(BASIC if level is Level.BASIC else ()), *metrics]
    requested = [name for name in dict.fromkeys(named) if name not in without]
    return [
        *(("--set", "full") if level is Level.FULL else ()),
        *(("--metrics", ",".join(requested)) if requested else ()),
        "--clock-control", "none",  # Keep the worker's clocks, at which the times were measured.
        # The default: flush caches before each pass, because they are cold in a timed window, too. Otherwise a second
        # pass would find the first pass's data in the L2.
        "--cache-control", "all",
        "--launch-count", str(LAUNCHES[level]),
        "--kill", "no",  # The process ends by itself: a killed runner would look like a crashed one.
    ]  # fmt: skip


def refused(printed: str) -> tuple[str, ...]:
    """The metrics that this card lacks by ncu's error message.

    ncu then profiles nothing, and the caller repeats the run without them. The message differs between versions:
    "Failed to access the following 2 metrics: …", "Failed to find metric …".
    """
    return tuple(dict.fromkeys(name for line in _COMPLAINT.findall(printed) for name in _NAME.findall(line)))
