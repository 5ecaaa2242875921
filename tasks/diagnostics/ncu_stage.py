"""Reads hardware counters: calls each kernel of a job once more under Nsight Compute, after the timing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from domain.device_metrics import PRINTING_SECONDS, CounterRequest
from domain.listing import MAX_PROFILE_BYTES, PROFILE, NoListing, ProfilerReport
from domain.result import CANDIDATE, first_line
from profiling.ncu.csv_report import MAX_CHARS
from profiling.ncu.metrics import BASIC, LAUNCHES, PRINTING, arguments, refused
from profiling.ncu.report import described
from tasks.diagnostics.tool_run import Inspection, NotInspected, read_output, remove_stale, seconds_since
from tasks.node import tool_lookup
from tasks.runtime.kernel_run import KernelRun

WARM_UP = 3
EXPORT, REPORT, TABLE = "profile", f"profile.{PROFILE}", "counters.csv"
NO_NCU = (
    "Nsight Compute (`ncu`) is not on this worker: install NVIDIA's package nsight-compute, or a CUDA toolkit with it"
)
NO_PERMISSION = "ERR_NVGPUCTRPERM"
REFUSED = (
    "the driver refuses counters to unprivileged processes: load it with NVreg_RestrictProfilingToAdminUsers=0 "
    "(docs/DEVICE_METRICS_GUIDE.md)"
)
INTO_FILE = ("/bin/sh", "-c", f'exec "$@" > {TABLE}', "sh")


def read_counters(inspection: Inspection, request: CounterRequest) -> dict[str, Any]:
    """The report's `device_metrics`. Raises JobCancelled."""
    answer: dict[str, Any] = {"level": request.level.value, "metrics": list(request.metrics)}
    tool = tool_lookup.ncu()
    reason = inspection.unavailable_reason() or (NO_NCU if tool is None else None)
    if tool is None or reason is not None:
        return {"status": "unavailable", "reason": reason, **answer}
    answer["profiler"] = f"ncu {tool_lookup.version(tool)}"
    flat: dict[str, Any] = {}
    for kernel_run in reversed(inspection.kernel_runs):
        started = time.monotonic()
        try:
            side, flat[kernel_run.role] = _measure(inspection, kernel_run, tool, request)
            side = {"status": "measured", **side}
        except NotInspected as why:
            side = {"status": "unavailable", "reason": str(why), "kernels": [], "kernels_omitted": 0, "advice": []}
            kernel_run.diagnosis.profile = kernel_run.diagnosis.profile or NoListing(PROFILE, str(why))
        answer[kernel_run.role] = {**side, "seconds": seconds_since(started)}
    candidate = answer[CANDIDATE]
    return {
        "status": candidate["status"],
        "reason": candidate["reason"],
        **answer,
        **_under_original_names(inspection, flat),
    }


def _under_original_names(inspection: Inspection, flat: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The metrics under the names of the original service, as far as it had them."""
    owner, candidate = inspection.kernel_runs[0], inspection.candidate
    named = {"original_device_metrics": flat.get(owner.role, {})}
    if owner is candidate:
        return {**flat.get(owner.role, {}), **named}
    return {**named, "custom_device_metrics": flat.get(candidate.role, {})}


def _measure(
    inspection: Inspection, kernel_run: KernelRun, ncu: Path, request: CounterRequest
) -> tuple[dict[str, Any], dict[str, Any]]:
    remove_stale(kernel_run.folder, REPORT, TABLE)
    until = time.monotonic() + request.level.seconds
    printed, failure = _run_ncu(inspection, kernel_run, ncu, request, until)
    # The submission can influence this text, so only requested metrics are accepted as unknown.
    unknown = tuple(name for name in refused(printed) if name in (*request.metrics, *BASIC))
    if unknown:  # An unknown metric makes ncu count nothing, so run it again without.
        printed, failure = _run_ncu(inspection, kernel_run, ncu, request, until, without=unknown)
    complaint = _complaint(printed)
    if complaint is not None and NO_PERMISSION in complaint:
        raise NotInspected(REFUSED)
    report = read_output(kernel_run.folder / REPORT, MAX_PROFILE_BYTES)
    if failure is not None or report is None:
        raise NotInspected(complaint or failure or "the call launched no kernel, or the profiler saw none")
    kernel_run.diagnosis.profile = ProfilerReport.of(report)
    printed_by_import = inspection.program(
        kernel_run, [*INTO_FILE, str(ncu), "--import", REPORT, *PRINTING], PRINTING_SECONDS
    )
    table = (read_output(kernel_run.folder / TABLE, MAX_CHARS) or b"").decode(errors="replace")
    try:
        side, flat = described(table, request.metrics)
    except ValueError as error:
        raise NotInspected(f"the profiler's report cannot be read: {_complaint(printed_by_import) or error}") from error
    most = LAUNCHES[request.level]
    note = f"of a call's launches the first {most} were counted" if side["launches"] >= most else None
    return {**side, "reason": note, "rejected_metrics": list(unknown)}, flat


def _run_ncu(
    inspection: Inspection,
    kernel_run: KernelRun,
    ncu: Path,
    request: CounterRequest,
    until: float,
    without: tuple[str, ...] = (),
) -> tuple[str, str | None]:
    tool = [
        *(str(ncu), "--profile-from-start", "off", "--target-processes", "application-only"),
        *("--export", EXPORT, "--force-overwrite"),
        *arguments(request.level, request.metrics, without=without),
    ]
    return inspection.call(kernel_run, tool, until - time.monotonic(), WARM_UP)


def _complaint(printed: str) -> str | None:
    """The profiler's own error message, if it printed one."""
    line = next((line for line in printed.splitlines() if line.startswith("==ERROR==")), None)
    return first_line(line) if line is not None else None
