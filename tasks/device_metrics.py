"""What the GPU's counters say of a job's kernels: each called once more beneath Nsight Compute, after its timing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from domain.device_metrics import CountersAsked
from domain.listing import MAX_PROFILE_BYTES, PROFILE, NoListing, ProfilerReport
from domain.result import CANDIDATE, first_line
from profiling.counter_choice import PRINTING, arguments
from profiling.counter_report import MAX_BYTES, described
from tasks import instruments
from tasks.contender import Contender
from tasks.inspection import Inspection, NotInspected, content, spent

READ_S = 30.0
WARM_UP = 3
EXPORT, REPORT, TABLE = "profile", f"profile.{PROFILE}", "counters.csv"
NO_NCU = (
    "Nsight Compute (`ncu`) is not on this worker: install NVIDIA's package nsight-compute, or a CUDA toolkit with it"
)
REFUSED_SIGN = "ERR_NVGPUCTRPERM"
REFUSED = (
    "the driver refuses counters to unprivileged processes: load it with NVreg_RestrictProfilingToAdminUsers=0 "
    "(docs/DEVICE_METRICS_GUIDE.md)"
)
INTO_FILE = ("/bin/sh", "-c", f'exec "$@" > {TABLE}', "sh")


def look_at_counters(inspection: Inspection, asked: CountersAsked) -> dict[str, Any]:
    """The answer's `device_metrics`. Raises JobCancelled."""
    told: dict[str, Any] = {"level": asked.level.value, "metrics": list(asked.metrics)}
    tool = instruments.ncu()
    reason = inspection.why_not() or (NO_NCU if tool is None else None)
    if tool is None or reason is not None:
        return {"status": "unavailable", "reason": reason, **told}
    told["profiler"] = f"ncu {instruments.version(tool)}"
    flat: dict[str, Any] = {}
    for contender in reversed(inspection.contenders):
        started = time.monotonic()
        try:
            side, flat[contender.role] = _measured(inspection, contender, tool, asked)
            side = {"status": "measured", "reason": None, **side}
        except NotInspected as why:
            side = {"status": "unavailable", "reason": str(why), "kernels": [], "kernels_left_out": 0, "advice": []}
            contender.profile = NoListing(PROFILE, str(why))
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
    inspection: Inspection, contender: Contender, ncu: Path, asked: CountersAsked
) -> tuple[dict[str, Any], dict[str, Any]]:
    folder, seconds = contender.folder, asked.level.seconds
    tool = [
        *(str(ncu), "--profile-from-start", "off", "--target-processes", "application-only"),
        *("--export", EXPORT, "--force-overwrite"),
        *arguments(asked.level, asked.metrics),
    ]
    printed, failure = inspection.call(contender, tool, seconds, WARM_UP)
    if REFUSED_SIGN in printed:
        raise NotInspected(REFUSED)
    report = content(folder / REPORT, MAX_PROFILE_BYTES)
    if report is None:
        raise NotInspected(failure or _complaint(printed) or "the profiler left no report")
    contender.profile = ProfilerReport.of(report)
    command = [*INTO_FILE, str(ncu), "--import", REPORT, *PRINTING]
    said = inspection.program(contender, command, READ_S)
    table = content(folder / TABLE, MAX_BYTES)
    try:
        return described((table or b"").decode(errors="replace"), asked.metrics)
    except ValueError as error:
        raise NotInspected(f"the profiler's report cannot be read: {_complaint(said) or error}") from error


def _complaint(printed: str) -> str | None:
    """What the profiler itself says went wrong."""
    line = next((line for line in printed.splitlines() if line.startswith("==ERROR==")), None)
    return first_line(line) if line is not None else None
