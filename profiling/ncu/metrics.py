"""What Nsight Compute is asked to count: its arguments for a level and the metrics that a request names besides.

The names are those of ncu 2025.3 (compute capability 8.0 and newer). `derived__*` is ncu's own arithmetic on what its
sections collect and cannot be asked for by name (Nsight Compute, Source Page, Pre-Defined Source Metrics), so the basic
level asks for the operands and divides here (profiling/ncu/kernel_summary.py).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from domain.device_metrics import Level

LAUNCHES = {Level.BASIC: 64, Level.FULL: 32}
"""Kernel launches of a call that are counted at most: each is run again for every pass, 24 times at "basic" and 38 at
"full" on an H200 (docs/measurements.md)."""

STALLS = (
    "barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle", "long_scoreboard",
    "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "not_selected", "selected",
    "short_scoreboard", "sleeping", "tex_throttle", "wait",
)  # fmt: skip
"""What a warp can be at between two instructions, by the name in ncu's metrics. `selected` is the one that is no
waiting."""

FLOPS = {
    **dict.fromkeys(("dadd", "dmul", "fadd", "fmul"), 1),
    **dict.fromkeys(("dfma", "ffma", "hadd", "hmul"), 2),
    "hfma": 4,
}
"""Operations of one thread in one instruction. Half-precision instructions are taken as packed, as ncu takes them."""

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
    """Warps that wait for that reason, per instruction issued: cycles of a warp's latency."""
    return f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"


LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
"""Cycles from one instruction of a warp to its next, whatever it is at meanwhile."""

DRAM_BYTES = ("dram__bytes_read.sum", "dram__bytes_write.sum")
SECTORS = "memory_l2_theoretical_sectors_global"
SECTORS_IDEAL = f"{SECTORS}_ideal"


def accesses(what: str, op: str) -> str:
    """The `requests` or `sectors` of global memory's loads (`ld`) or stores (`st`)."""
    return f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum"


def thread_operations(name: str) -> str:
    """Threads that run that instruction, a cycle."""
    return f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum.per_cycle_elapsed"


def tensor_operations(source: str) -> str:
    """Operations of the tensor cores on that dtype."""
    return f"sm__ops_path_tensor_src_{source}.sum"


def of_peak(counter: str, over: str = "elapsed") -> str:
    """The counter's average in % of what the unit can sustain, over all cycles or the ones that it was active in."""
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
"""How a report is printed so that profiling/ncu/csv_report.py reads it."""

_COMPLAINT = re.compile(r"^==ERROR== .*\bmetrics?\b.*$", re.MULTILINE)
_NAME = re.compile(r"(?<![\w.:/])[a-z][a-z0-9]*_[a-z0-9_]*(?:\.[a-z0-9_]+){0,5}(?![\w/])", re.ASCII)


def arguments(level: Level, metrics: Sequence[str] = (), *, without: Collection[str] = ()) -> list[str]:
    """ncu's arguments for counting at `level`, and `metrics` besides.

    `without` are names that ncu has refused on this card. What is run, where the report goes and which part of the
    process is looked at is the caller's.
    """
    named = [*(BASIC if level is Level.BASIC else ()), *metrics]
    kept = [name for name in dict.fromkeys(named) if name not in without]
    return [
        *(("--set", "full") if level is Level.FULL else ()),
        *(("--metrics", ",".join(kept)) if kept else ()),
        "--clock-control", "none",  # The clocks are the worker's, and those that the times were taken at.
        # ncu's default, and wanted: caches are emptied before each pass, as they are cold in a timed window. Without it
        # the second pass of a kernel finds in the L2 what the first has left there.
        "--cache-control", "all",
        "--launch-count", str(LAUNCHES[level]),
        "--kill", "no",  # The process ends by itself: a runner that is killed looks like one that crashed.
    ]  # fmt: skip


def refused(said: str) -> tuple[str, ...]:
    """The metrics that ncu says this card does not have, out of what it printed.

    ncu then counts nothing at all, so the run is to be repeated without them. Its sentence differs between versions:
    "Failed to access the following 2 metrics: …", "Failed to find metric …".
    """
    return tuple(dict.fromkeys(name for line in _COMPLAINT.findall(said) for name in _NAME.findall(line)))
