"""The report of a job that has ended: its whole record, in the order of a reader's questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.pages import baselines, evidence, next_step
from api.pages.cases import cases_figure, cases_text, sizes_figure
from api.pages.counters import counters
from api.pages.heat_map import heat_map
from api.pages.machine_code import codes
from api.pages.roofline import roofline
from api.pages.sanitizer import error_summary
from api.pages.speedup import speedup_figure
from api.pages.stages import steps
from api.pages.verdict import verdict
from api.pages.windows import windows_figure
from domain.job import State
from tasks.jobs.job_view import JobView

Result = Mapping[str, Any]
STATS = (
    ("mean", "Mean"), ("median", "Median"), ("std", "Standard deviation"), ("min", "Min"),
    ("percentile_95", "95th percentile"), ("percentile_99", "99th percentile"), ("max", "Max"),
)  # fmt: skip


def template_values(view: JobView, address: str, *, keyed: bool) -> dict[str, Any]:
    """The values of the template `report.html`; `address` is the service's, `keyed` whether it requires API keys."""
    values: dict[str, Any] = {
        "view": view,
        "verdict": verdict(view),
        "steps": steps(view.timeline),
        "address": address,
        "keyed": keyed,
        "next": next_step.of_job(view),
        "result": None,
    }
    if view.state is State.COMPLETED and view.result is not None:
        values |= _of_result(view.result)
    return values


def _of_result(result: Result) -> dict[str, Any]:
    kernel, reference = result["kernel_exec_result"], result.get("ref_result")
    timing, reference_timing = kernel.get("timing"), (reference or {}).get("timing")
    kernels = {"candidate": kernel, "reference": reference} if reference else {"kernel": kernel}
    sides = {side: one.get("timing") for side, one in kernels.items()}
    speedup = result.get("speedup")
    windows = windows_figure(sides)
    heat = heat_map((kernel.get("comparison") or {}).get("mismatch_map"))
    return {
        "result": result,
        "kernel": kernel,
        "reference": reference,
        "timing": timing,
        "reference_timing": reference_timing,
        "comparison": kernel.get("comparison"),
        "speedup": speedup,
        "qualification": result.get("qualification"),
        "baselines": baselines.others(result),
        "speedup_figure": speedup_figure(speedup) if speedup else None,
        "cases": result.get("cases"),
        "cases_summary": result.get("cases_summary"),
        "cases_figure": cases_figure(result),
        "sizes_figure": sizes_figure(result),
        "cases_text": cases_text(result.get("cases") or ()),
        "windows": windows,
        "disturbed": any(timing.get("excluded_windows") for timing in sides.values() if timing),
        "stats": [(title, key) for key, title in STATS],
        "kernels": kernels,
        "sides": sides,
        "heat": heat,
        "flags": [(evidence.subject(flag), flag) for flag in evidence.flags(result)],
        "card": (timing or reference_timing or {}).get("gpu_state"),
        "inputs": kernel.get("inputs") if (kernel.get("inputs") or {}).get("source") else None,
        "roofline": roofline(kernels),
        "texts": _texts(kernel, reference),
        "launches": [(side, one["launches"]) for side, one in kernels.items() if one.get("launches")],
        "codes": codes(result),
        "counters": counters(result),
        "sanitizer": kernel.get("sanitizer"),
        "sanitizer_errors": error_summary(kernel),
    }


def _texts(kernel: Result, reference: Result | None) -> list[tuple[str, str]]:
    """The messages of compilers, kernels and their processes, each under its heading."""
    texts = [("Why it did not compile", kernel.get("compilation_error"))]
    if (why := kernel.get("validation_error")) != (kernel.get("comparison") or {}).get("message"):
        texts.append(("Why it did not pass", why))
    for side, outcome in (("kernel", kernel), ("reference", reference or {})):
        texts.append((f"The compiler about the {side}", (outcome.get("build") or {}).get("log")))
        texts.append((f"What the {side} printed", outcome.get("output")))
    if reference and reference.get("status") != "passed":
        texts.append(
            ("Why the reference failed", reference.get("compilation_error") or reference.get("validation_error"))
        )
    return [(title, text.strip()) for title, text in texts if text and text.strip()]
