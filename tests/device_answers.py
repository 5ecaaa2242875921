"""What the hardware counters and compute-sanitizer answer, as samples for the tests of who shows it."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
OFFSET = "smsp__inst_executed.sum"
REFUSED = (
    "the driver lets only administrators read the counters: set NVreg_RestrictProfilingToAdminUsers=0 for it, and "
    "restart the machine"
)


def kernel(name: str = "softmax_rows", **more: Any) -> Json:
    """One kernel that is bound by memory."""
    return {
        "name": name, "launches": 2, "grid": [4096, 1, 1], "block": [256, 1, 1], "time_us": 41.5, "share": 0.83,
        "speed_of_light": {"sm_percent": 22.4, "memory_percent": 91.2},
        "memory": {
            "dram_percent": 90.1, "dram_bytes": 134217728, "dram_bytes_per_s": 3.2e12, "l2_percent": 45.0,
            "l2_hit_percent": 50.3, "l1_percent": 30.0, "l1_hit_percent": 12.0,
        },
        "roofline": {
            "flops": 33554432, "flops_per_s": 8.1e11, "flops_per_byte": 0.25, "percent_of_peak": 90.1,
            "bound": "memory",
        },
        "occupancy": {
            "achieved_percent": 71.5, "theoretical_percent": 75.0,
            "blocks_by": {"registers": 6, "shared_memory": 14, "warps": 8, "blocks": 32}, "limited_by": "registers",
        },
        "stalls": [{"reason": "long_scoreboard", "percent": 61.0}, {"reason": "barrier", "percent": 12.5}],
        "instructions": {
            "executed": 9437184, "per_cycle": 1.1, "threads_per_instruction": 31.9,
            "pipes": {"fma": 10.1, "alu": 22.4, "tensor": 0.0, "fp64": None, "xu": 8.0, "lsu": 19.5},
        },
        "tensor_percent": 0.0, "registers": 40, "spills": {"requests": 0, "percent": 0.0},
        "shared_bytes": {"static": 1024, "dynamic": 0}, "bank_conflicts": {"n_way": 1.0, "excess_percent": 0.0},
        "coalescing": {"sectors_per_load_request": 4.0, "sectors_per_store_request": 4.0, "excess_percent": 0.0},
        "requested_metrics": {OFFSET: {"value": 9437184.0, "unit": "inst"}},
        **more,
    }  # fmt: skip


def side(*kernels: Json, advice: str = "It moves 90 % of what the memory can: fewer bytes are the way on.") -> Json:
    """One side that was measured."""
    chosen = list(kernels or (kernel(),))
    told = [
        {"kernel": one["name"], "rule": "memory_ceiling", "message": advice, "figures": {"dram_percent": 90.1}}
        for one in chosen[:1]
    ]
    return {
        "status": "measured", "reason": None, "kernels": chosen, "kernels_omitted": 3, "advice": told, "seconds": 8.1,
    }  # fmt: skip


def unavailable(reason: str = REFUSED) -> Json:
    """Nothing was measured, on no side."""
    return {
        "status": "unavailable", "reason": reason, "level": "basic", "metrics": [], "profiler": None,
        "candidate": {"status": "unavailable", "reason": reason, "kernels": [], "kernels_omitted": 0, "advice": [],
                      "seconds": 0.0},
    }  # fmt: skip


def measured(candidate: Json | None = None, reference: Json | None = None) -> Json:
    """Of a kernel alone, or of a comparison."""
    flat: Json = {"speed_of_light": {"memory_throughput": 91.2}}
    told: Json = {
        "status": "measured", "reason": None, "level": "basic", "metrics": [OFFSET], "profiler": "ncu 2025.3.1.0",
        "candidate": candidate or side(), "original_device_metrics": flat,
    }  # fmt: skip
    return {**told, "reference": reference, "custom_device_metrics": flat} if reference else {**told, **flat}


def finding(**more: Any) -> Json:
    """A write past the end."""
    return {
        "kind": "Invalid __global__ write of size 4 bytes", "kernel": "scale", "line": 3, "file": "kernel.cu",
        "block": "(3,0,0)", "thread": "(255,0,0)", "message": "Address 0x7f00 is out of bounds", "count": 3, **more,
    }  # fmt: skip


def sanitizer(*findings: Json, racecheck: Json | None = None) -> Json:
    """What memcheck found, beside three tools that found nothing."""
    clean: Json = {"status": "clean", "reason": None, "findings": [], "findings_omitted": 0}
    memcheck = {**clean, "status": "findings", "findings": list(findings)} if findings else clean
    return {
        "status": "findings" if findings else "clean", "reason": None, "seconds": 9.0,
        "tools": {"memcheck": memcheck, "racecheck": racecheck or clean, "initcheck": clean, "synccheck": clean},
    }  # fmt: skip
