"""What the GPU's counters say of a job's kernels: each called once more beneath Nsight Compute, after its timing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from domain.device_metrics import PRINTING_SECONDS, CountersAsked
from domain.listing import MAX_PROFILE_BYTES, PROFILE, NoListing, ProfilerReport
from domain.result import CANDIDATE, first_line
from profiling.ncu.csv_report import MAX_CHARS
from profiling.ncu.metrics import BASIC, LAUNCHES, PRINTING, arguments, refused
from profiling.ncu.report import described
from tasks.diagnostics.tool_run import Inspection, NotInspected, clear_away, content, spent
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


def look_at_counters(inspection: Inspection, asked: CountersAsked) -> dict[str, Any]:
    """The answer's `device_metrics`. Raises JobCancelled."""
    told: dict[str, Any] = {"level": asked.level.value, "metrics": list(asked.metrics)}
    tool = tool_lookup.ncu()
    reason = inspection.why_not() or (NO_NCU if tool is None else None)
    if tool is None or reason is not None:
        return {"status": "unavailable", "reason": reason, **told}
    told["profiler"] = f"ncu {tool_lookup.version(tool)}"
    flat: dict[str, Any] = {}
    for contender in reversed(inspection.contenders):
        started = time.monotonic()
        try:
            side, flat[contender.role] = _measured(inspection, contender, tool, asked)
            side = {"status": "measured", **side}
        except NotInspected as why:
            side = {"status": "unavailable", "reason": str(why), "kernels": [], "kernels_left_out": 0, "advice": []}
            contender.profile = contender.profile or NoListing(PROFILE, str(why))
        told[contender.role] = {**side, "seconds": spent(started)}
    candidate = told[CANDIDATE]
    return {"status": candidate["status"], "reason": candidate["reason"], **told, **_as_originally(inspection, flat)}


def _as_originally(inspection: Inspection, flat: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """By the names that the original service had, where it had them."""
    owner, candidate = inspection.contenders[0], inspection.candidate
    named = {"original_device_metrics": flat.get(owner.role, {})}
    if owner is candidate:
        return {**flat.get(owner.role, {}), **named}
    return {**named, "custom_device_metrics": flat.get(candidate.role, {})}


def _measured(
    inspection: Inspection, contender: KernelRun, ncu: Path, asked: CountersAsked
) -> tuple[dict[str, Any], dict[str, Any]]:
    clear_away(contender.folder, REPORT, TABLE)
    until = time.monotonic() + asked.level.seconds
    printed, failure = _counted(inspection, contender, ncu, asked, until)
    # By a text that the submission has a part in, so that only what was asked for is believed to be unknown.
    unknown = tuple(name for name in refused(printed) if name in (*asked.metrics, *BASIC))
    if unknown:  # Nothing is counted then.
        printed, failure = _counted(inspection, contender, ncu, asked, until, without=unknown)
    complaint = _complaint(printed)
    if complaint is not None and NO_PERMISSION in complaint:
        raise NotInspected(REFUSED)
    report = content(contender.folder / REPORT, MAX_PROFILE_BYTES)
    if failure is not None or report is None:
        raise NotInspected(complaint or failure or "the call launched no kernel, or the profiler saw none")
    contender.profile = ProfilerReport.of(report)
    said = inspection.program(contender, [*INTO_FILE, str(ncu), "--import", REPORT, *PRINTING], PRINTING_SECONDS)
    table = (content(contender.folder / TABLE, MAX_CHARS) or b"").decode(errors="replace")
    try:
        side, flat = described(table, asked.metrics)
    except ValueError as error:
        raise NotInspected(f"the profiler's report cannot be read: {_complaint(said) or error}") from error
    most = LAUNCHES[asked.level]
    told = f"of a call's launches the first {most} were counted" if side["launches"] >= most else None
    return {**side, "reason": told, "metrics_refused": list(unknown)}, flat


def _counted(
    inspection: Inspection,
    contender: KernelRun,
    ncu: Path,
    asked: CountersAsked,
    until: float,
    without: tuple[str, ...] = (),
) -> tuple[str, str | None]:
    tool = [
        *(str(ncu), "--profile-from-start", "off", "--target-processes", "application-only"),
        *("--export", EXPORT, "--force-overwrite"),
        *arguments(asked.level, asked.metrics, without=without),
    ]
    return inspection.call(contender, tool, until - time.monotonic(), WARM_UP)


def _complaint(printed: str) -> str | None:
    """What the profiler itself says went wrong."""
    line = next((line for line in printed.splitlines() if line.startswith("==ERROR==")), None)
    return first_line(line) if line is not None else None
