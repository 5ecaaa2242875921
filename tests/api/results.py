"""Bodies of completed jobs, as the pipeline makes them: a comparison that passed on a GPU, and one that is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from domain.cases.case import Case
from domain.cases.case_result import CaseResult, CaseResults
from domain.flags.flag import Flag
from domain.result import Comparison, Outcome, Report, RuntimeStats, Speedup, Status, Timing

STATS = RuntimeStats(0.0124, 0.0003, 0.012, 0.0131, 0.0123, 0.0129, 0.013)
ENVIRONMENT = {
    "host": "node7",
    "address": "10.0.0.7",
    "device": "cuda:0",
    "gpu_name": "NVIDIA H200",
    "gpu_type": "h200",
}
SPAN = {"min": 1755, "max": 1980}
CARD: dict[str, Any] = {
    "samples": 14, "unavailable": None, "sm_clock_mhz": SPAN, "max_sm_clock_mhz": 1980, "memory_clock_mhz": None,
    "max_memory_clock_mhz": None, "temperature_c": {"min": 41, "max": 44}, "power_w": {"min": 310.5, "max": 402.0},
    "power_limit_w": 700.0, "memory_used_bytes": {"min": 3 << 30, "max": 3 << 30}, "throttle_reasons": ["sw_power_cap"],
    "throttled_ms": {"sw_power_cap": 12.5}, "new_ecc_errors": 0, "other_processes": [],
}  # fmt: skip
INPUTS = {"source": "get_inputs", "shapes": [[256, 512]], "dtypes": ["float32"], "fresh_sets": 209, "reused_sets": 3,
          "replay_seed": "5b1f", "inputs_replayed": False}  # fmt: skip


def timing(ms: float, *flags: Flag, windows: int = 12) -> Timing:
    return Timing(
        "gated_window", STATS, ms, 240, windows, 240 * windows, 0.02, "events", "cold", list(flags),
        single_call_ms=ms * 1.1, launches=2, relative_ci=0.004, stop_reason="target_precision", gpu_state=CARD,
        window_ms=[ms * (1 + index / 1000) for index in range(windows)], excluded_windows=[2],
    )  # fmt: skip


def roofline(**more: Any) -> dict[str, Any]:
    """As `profiling.roofline.intensity` gives it: a product near the arithmetic's rate."""
    return {
        "bytes": 100_663_296, "bytes_per_s": 5.2e11, "memory_share": 0.13, "flops": {"bfloat16": 137_438_953_472},
        "flops_per_s": 7.1e14, "arithmetic_share": 0.93, "flops_per_byte": 1365.3, "bound": "arithmetic",
        "roof_bytes_per_s": 4.0e12, "roof_flops_per_s": 7.6e14,
    } | more  # fmt: skip


def comparison(**more: Any) -> Comparison:
    return Comparison(
        True, 208, 208, 1e-6, 0.05, 2e-8, 0, 27_262_976, 0.01, 0.01, strict={"passed": True, "atol": 1e-5,
        "rtol": 1.3e-6, "mismatch_count": 0, "relative_rms_error": 7e-8}, **more,
    )  # fmt: skip


def passed(ratio: float = 2.0, *flags: Flag, candidate: str = "c" * 64, **report: Any) -> dict[str, Any]:
    """A comparison that passed, that many times as fast, within 10 % each way."""
    kernel = Outcome(
        Status.PASSED, "triton", compiled=True, entry="kernel relu", inputs=INPUTS, build={"seconds": 0.4},
        timing=timing(0.0124, *flags), comparison=comparison(), digest=candidate,
    )  # fmt: skip
    reference = Outcome(
        Status.PASSED, "torch", compiled=True, entry="class Model", timing=timing(0.0124 * ratio), digest="d" * 64
    )
    verdict = "faster" if ratio > 1.1 else "slower" if ratio < 0.9 else "not_distinguishable"
    speedup = report.pop("speedup", Speedup(ratio, ratio * 0.9, ratio * 1.1, verdict))
    return Report(kernel, ENVIRONMENT, reference, speedup).body("id")


def of_cases(*, wrong_in: str | None = None, sizes: Sequence[int] = (64, 64, 64)) -> dict[str, Any]:
    """A comparison for three visible cases, of those sizes, and a hidden one."""
    results = []
    for name, ratio, size in zip(("n=64", "odd", "large"), (1.5, 0.8, 3.0), sizes, strict=True):
        verdict = "faster" if ratio > 1 else "slower"
        right = wrong_in is None
        results.append(
            CaseResult(
                Case(name, {"n": 64}),
                Status.WRONG_RESULT if name == wrong_in else Status.PASSED,
                "Outputs are out of tolerance" if name == wrong_in else None,
                [[size, 128]],
                comparison(),
                timing(0.2) if right else None,
                timing(0.2 * ratio) if right else None,
                Speedup(ratio, ratio * 0.9, ratio * 1.1, verdict) if right else None,
            )
        )
    hidden = CaseResult(Case("secret", {"n": 77}, hidden=True, timed=False), Status.PASSED)
    body = wrong() if wrong_in else passed(1.53)
    for side in ("kernel_exec_result", "ref_result"):
        if body[side]["timing"]:
            body[side]["timing"] |= {"window_ms": [], "excluded_windows": []}
    return body | CaseResults((*results, hidden)).to_dict()


def evaluated(**more: Any) -> dict[str, Any]:
    """One kernel alone that passed."""
    kernel = Outcome(Status.PASSED, "cuda", compiled=True, entry="kernel saxpy", timing=timing(0.5), **more)
    return Report(kernel, ENVIRONMENT).body("id")


WHERE = {
    "output": 0, "shape": [2, 64, 48], "slice": [1], "folded": False, "rows": 64, "columns": 48, "block": [2, 2],
    "counts": [[4 if row >= 16 and column == 23 else 0 for column in range(24)] for row in range(32)],
    "mismatch_count": 64, "output_mismatch_count": 70,
}  # fmt: skip


def wrong(message: str = "Outputs are out of tolerance") -> dict[str, Any]:
    """A comparison whose answers are wrong, with a map of where."""
    found = Comparison(
        False, 5, 0, 4.0, 5000.0, 0.07, 61_039, 655_360, 0.01, 0.01, message,
        {"output": 0, "index": [1, 32, 46], "expected": 0.95, "actual": "nan"}, mismatch_map=WHERE,
    )  # fmt: skip
    kernel = Outcome(Status.WRONG_RESULT, "triton", compiled=True, message=message, comparison=found, inputs=INPUTS)
    return Report(kernel, ENVIRONMENT, Outcome(Status.PASSED, "torch", compiled=True)).body("id")


def failed(status: Status, message: str, **more: Any) -> dict[str, Any]:
    """A kernel that came to no answers."""
    return Report(Outcome(status, "cuda", message=message, **more), ENVIRONMENT).body("id")
