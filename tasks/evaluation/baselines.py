"""Times the reference under torch.compile, and gives the kernel's speed-up over it.

The compiled reference is judged as a candidate of the reference: in a runner of its own, on fresh secret inputs, its
windows beside the reference's. The kernel takes no part, so that no failure here is its fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from domain.budget import Budget
from domain.request import Request
from domain.result import Report, Status, first_line
from domain.speed.baseline import COMPILABLE, Baseline, BaselineResult, NoBaseline
from profiling.results.speedup import speedup_over


def with_baselines(report: Report, request: Request, evaluate: Callable[[Request], Report]) -> Report:
    """The report with the baselines that the request names; `evaluate` runs a comparison.

    Raises what `evaluate` raises: JobCancelled, InfrastructureFault.
    """
    reference = report.reference
    if Baseline.COMPILE not in request.baselines or reference is None:
        return report
    latency_ms = reference.timing.latency_ms if reference.timing is not None else None
    eager = BaselineResult(Baseline.EAGER, latency_ms, report.speedup)
    if report.speedup is None:
        eager = replace(eager, code=NoBaseline.NO_SPEEDUP.value, message=report.speedup_unavailable_reason())
    if request.reference is None or request.reference.kernel_type not in COMPILABLE:
        message = f"torch.compile takes a reference in PyTorch, and this one is {reference.kernel_type}"
        missing = BaselineResult(Baseline.COMPILE, code=NoBaseline.NOT_PYTORCH.value, message=message)
        return replace(report, baselines=_wire(eager, missing))
    if report.speedup is None:
        return replace(report, baselines=_wire(eager, replace(eager, name=Baseline.COMPILE, latency_ms=None)))
    compiled = evaluate(comparison(request))
    device = replace(
        report.device,
        held_s=report.device.held_s + compiled.device.held_s,
        windows_s=report.device.windows_s + compiled.device.windows_s,
    )
    return replace(report, baselines=_wire(eager, _result(report, compiled, request)), device=device)


def comparison(request: Request) -> Request:
    """The comparison of the reference under torch.compile with itself, without checks that only a submission needs."""
    if request.reference is None:
        raise ValueError("a baseline needs a reference")
    return replace(
        request,
        kernel=replace(request.reference, under_compile=True),
        budget=Budget.QUICK if request.budget is Budget.QUICK else Budget.DEFAULT,
        baselines=(Baseline.EAGER,),
        profile=False,
        artifacts=(),
        device_metrics=None,
        sanitize=False,
        determinism=False,
        confirms=None,
        tried=True,
    )


def _result(report: Report, compiled: Report, request: Request) -> BaselineResult:
    """The baseline of that comparison; `report` is the kernel's."""
    outcome = compiled.outcome
    found = BaselineResult(Baseline.COMPILE, graph_breaks=outcome.build.get("graph_breaks"))
    if outcome.status is Status.TIMEOUT and not outcome.compiled:
        message = f"torch.compile did not end within {request.build_timeout} s; raise `build_timeout`"
        return replace(found, code=outcome.status.value, message=message)
    if outcome.status is not Status.PASSED:
        return replace(found, code=outcome.status.value, message=first_line(outcome.message))
    both = report.speedup, compiled.speedup
    speedup = speedup_over(both[0], both[1]) if both[0] is not None and both[1] is not None else None
    if outcome.timing is None or speedup is None:
        message = "its time, or the kernel's, is unknown or only a bound"
        return replace(found, code=NoBaseline.NOT_TIMED.value, message=message)
    return replace(found, latency_ms=outcome.timing.latency_ms, speedup=speedup)


def _wire(*baselines: BaselineResult) -> list[dict[str, Any]]:
    return [baseline.to_dict() for baseline in baselines]
