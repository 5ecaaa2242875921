"""Makes the report of one evaluation from what its stages recorded, as complete as they came."""

from __future__ import annotations

import contextlib
import platform
import socket
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from backends.base import Target
from domain.fault import KernelFault
from domain.kernel import Kernel, KernelType
from domain.kernel_guess import looks_like, other_type, uses_triton
from domain.request import Request
from domain.result import DeviceReport, Lack, Outcome, Report, Status
from domain.speed.headroom import headroom
from profiling.gpu.xid_errors import summary
from tasks.diagnostics.post_timing_checks import NOT_REACHED
from tasks.evaluation.case_report import with_cases
from tasks.evaluation.device_scope import DeviceUse
from tasks.node.device_info import detect
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.stream_isolation import roles_with_own_queues

COMPILED_LATE = (
    "compiled with the device held, as in every job: {names}; on a GPU `dry_run` says why the builder did not compile "
    "it, on a CPU the builder compiles only what the import of the source builds"
)


def make_report(
    job: JobContext, kernel_runs: Sequence[KernelRun], use: DeviceUse, device_metrics: dict[str, Any] | None
) -> Report:
    """The report; `device_metrics` are the counters that the request asked for."""
    candidate = kernel_runs[-1]
    on_gpu, reference = job.worker.target.is_cuda, None
    if candidate.reference is not None:
        reference = outcome(job.request, candidate.reference, use.inputs, on_gpu=on_gpu)
    failed = reference if candidate.reference is not None and candidate.reference.fault is not None else None
    report = Report(
        outcome(job.request, candidate, use.inputs, failed, on_gpu=on_gpu),
        _environment(job.worker.target),
        reference,
        use.speedup,
        device_metrics,
        budget=job.request.budget.to_dict(compares=reference is not None),
        spent_s=use.spent_s,
        built_s=sum(kernel_run.build.seconds for kernel_run in kernel_runs),
        device=_device(job, kernel_runs, use),
    )
    return with_cases(report, use.cases, kernel_runs) if use.cases is not None else report


def outcome(
    request: Request,
    kernel_run: KernelRun,
    inputs: dict[str, Any],
    failed_reference: Outcome | None = None,
    *,
    on_gpu: bool = False,
) -> Outcome:
    """The verdict about one kernel, as far as the job came. `on_gpu`: no runner may say that its worker lacks a GPU."""
    status, message, log = _verdict(kernel_run, failed_reference)
    diagnosis, position = kernel_run.diagnosis, _roofline(kernel_run)
    lacks = kernel_run.fault.lacks if kernel_run.fault is not None else None
    if status is not Status.UNSUPPORTED or (on_gpu and lacks is Lack.GPU):
        lacks = None
    return Outcome(
        status=status,
        kernel_type=kernel_run.kernel.kernel_type.value,
        compiled=kernel_run.was_compiled,
        worker_lacks=lacks,
        message=kernel_run.redact_paths(message) if message else None,
        log=kernel_run.redact_paths(log),
        output=kernel_run.redact_paths(kernel_run.output),
        entry=kernel_run.loaded.entry if kernel_run.loaded is not None else None,
        inputs=inputs,
        build=_build(kernel_run),
        timing=kernel_run.timing,
        roofline=position,
        headroom=headroom(kernel_run.timing, position),
        comparison=kernel_run.comparison,
        launches=diagnosis.launches or (NOT_REACHED if request.profile else None),
        listings=diagnosis.listings,
        profile=diagnosis.profile,
        sanitizer=diagnosis.sanitizer,
        determinism=diagnosis.determinism,
        gradients=diagnosis.gradients,
        digest=kernel_run.kernel.digest,
    )


def _verdict(kernel_run: KernelRun, failed_reference: Outcome | None) -> tuple[Status, str | None, str]:
    """Status, message and log."""
    if kernel_run.fault is not None:
        return kernel_run.fault.status, _with_type(kernel_run.kernel, kernel_run.fault), kernel_run.fault.log
    if kernel_run.comparison is not None and not kernel_run.comparison.passed:
        # Before a failed reference: a wrong output remains wrong, even if the reference fails after it.
        return Status.WRONG_RESULT, kernel_run.comparison.message, ""
    if failed_reference is not None:
        why = f"the reference failed ({failed_reference.status}): {failed_reference.message}"
        return Status.REFERENCE_FAILED, why, failed_reference.log
    return Status.PASSED, None, ""


def _with_type(kernel: Kernel, fault: KernelFault) -> str:
    """The fault's message; where the source cannot be of the named type, after the type that it looks like."""
    if fault.status not in (Status.COMPILE_ERROR, Status.CONTRACT_MISMATCH):
        return fault.message
    other = other_type(kernel.source_code, kernel.kernel_type)
    bare = kernel.kernel_type is not KernelType.TRITON and uses_triton(kernel.source_code)
    if other is None and bare and "nothing callable" in fault.message:
        other = looks_like(KernelType.TRITON)
    return fault.message if other is None else f"{other}; as `{kernel.kernel_type}`: {fault.message}"


def _build(kernel_run: KernelRun) -> dict[str, Any]:
    build, probe = kernel_run.build, kernel_run.probe
    late, breaks = (probe.compiled, probe.graph_breaks) if probe is not None else ((), None)
    return {
        **kernel_run.facts,
        "seconds": build.seconds,
        "deferred": build.artifact.deferred,
        "log": kernel_run.redact_paths(build.artifact.log),
        **build.origin,
        **({"graph_breaks": breaks} if breaks is not None else {}),
        **({"compiled_at_run_time": COMPILED_LATE.format(names=", ".join(late))} if late else {}),
    }


def _roofline(kernel_run: KernelRun) -> dict[str, Any] | None:
    work, timing = kernel_run.diagnosis.work, kernel_run.timing
    return (
        work.position(timing.latency_ms, timing.calls_per_window) if work is not None and timing is not None else None
    )


def _isolation(job: JobContext, candidate: KernelRun) -> dict[str, str]:
    verdict = job.queues.used_process_verdict
    process = {"process": "used" if candidate.earlier_jobs else "fresh"}
    return process if verdict is None else process | {"used_process_verdict": verdict}


def _reference_runner(reference: KernelRun) -> str:
    return "warm" if reference.earlier_jobs else "fresh"


def _device(job: JobContext, kernel_runs: Sequence[KernelRun], use: DeviceUse) -> DeviceReport:
    held = DeviceReport(
        job.queues.held_s + use.held_s,
        use.windows_s + (use.cases.windows_s if use.cases is not None else 0.0),
        memory_arrangement=use.memory_arrangement,
        reference_runner=_reference_runner(kernel_runs[0]) if job.request.reference is not None else None,
        isolation=_isolation(job, kernel_runs[-1]) if use.held_s else None,
    )
    if use.card_errors is None or not job.worker.device.is_cuda:
        return held
    own_queues, errors = roles_with_own_queues(kernel_runs), summary(use.card_errors)
    return replace(held, multi_queue_roles=own_queues, gpu_errors=errors)


@cache
def _environment(target: Target) -> dict[str, Any]:
    """Host, device and versions; JSON-ready."""
    host = socket.gethostname()
    address = None
    with contextlib.suppress(OSError):
        address = socket.gethostbyname(host)
    report: dict[str, Any] = {
        "host": host,
        "address": address,
        "device": target.device,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gpu_id": None,
        "gpu_type": None,
        "gpu_name": None,
        "gpu_model": detect().model,
        "cuda_version": torch.version.cuda,
    }
    with contextlib.suppress(ImportError):
        import triton

        report["triton"] = triton.__version__
    if target.is_cuda:
        properties, device = torch.cuda.get_device_properties(target.device), detect()
        report |= {
            "gpu_id": device.gpu_index,
            "gpu_name": properties.name,
            "gpu_type": device.gpu_type,
            "gpu_memory_bytes": properties.total_memory,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "driver": device.driver,
        }
    return report
