"""The pipeline of a job, from its request to its report: build, wait for the device, load, validate, time.

This is the referee's side: it never runs a line of a submission. A kernel's fault becomes an outcome in the report.
Only a cancellation or a fault of the service raises out of `run`.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from domain.request import Request
from domain.result import Report
from profiling.results.confirmation import confirmation
from tasks.diagnostics.code_listings import read_code
from tasks.evaluation.baselines import with_baselines
from tasks.evaluation.device_scope import DeviceScope
from tasks.evaluation.inspection import inspect
from tasks.evaluation.judging import judge
from tasks.evaluation.multi_process import evaluate_in_processes
from tasks.evaluation.qualification import qualification
from tasks.evaluation.report import make_report
from tasks.evaluation.runner_setup import set_up_runners
from tasks.evaluation.used_process import judge_again_if_doubtful, judged_again_after_our_fault
from tasks.runtime.job_callbacks import JobCallbacks
from tasks.runtime.job_context import JobContext
from tasks.runtime.worker_context import WorkerContext


def run(request: Request, worker: WorkerContext, callbacks: JobCallbacks | None = None) -> Report:
    """Evaluate a kernel, or compare two. Raises JobCancelled, InfrastructureFault, or whatever `on_stage` raises."""
    callbacks = callbacks or JobCallbacks()
    report = _in_processes(request, worker, callbacks)
    # The interim verdict is the kernel's: a baseline has none.
    beside = replace(callbacks, on_interim_result=JobCallbacks().on_interim_result)
    report = with_baselines(report, request, lambda one: _in_processes(one, worker, beside))
    if request.qualify:
        report = replace(report, qualification=qualification(request, report))
    if request.confirms is not None:
        report = replace(report, confirmation=confirmation(request.confirms, report).to_dict())
    return report


def _in_processes(request: Request, worker: WorkerContext, callbacks: JobCallbacks) -> Report:
    return evaluate_in_processes(lambda one, queues: _evaluate(JobContext.of(one, worker, callbacks, queues)), request)


def _evaluate(job: JobContext) -> Report:
    with ExitStack() as resources:
        kernel_runs = set_up_runners(job, resources)
        runners = resources.enter_context(ExitStack())
        device = DeviceScope(job, kernel_runs)
        if all(kernel_run.fault is None for kernel_run in kernel_runs):
            with judged_again_after_our_fault(job, kernel_runs, device), device.hold(runners):
                judge(job, kernel_runs, device)
                device_metrics = inspect(job, kernel_runs, device)
        else:
            device_metrics = inspect(job, kernel_runs, device)  # Records that there is nothing to inspect.
        read_code(kernel_runs, job, end_runners=runners.close)
        report = make_report(job, kernel_runs, device.use, device_metrics)
        judge_again_if_doubtful(job, kernel_runs, device, report)
        job.worker.teardown.submit(resources.pop_all())
        return report
