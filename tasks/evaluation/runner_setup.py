"""The work of a job before it has the device: it builds its kernels and takes a runner for each."""

from __future__ import annotations

from contextlib import ExitStack

from domain.job import Stage
from tasks.runtime.build_stage import Building
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import KernelRun, Stopped
from tasks.runtime.teardown import close


def set_up_runners(job: JobContext, resources: ExitStack) -> list[KernelRun]:
    """The kernels of the job, the candidate last, built and each with a runner; one has a fault if a build failed.

    Closing `resources` ends the runners and removes the folders. Raises JobCancelled, InfrastructureFault.
    """
    worker = job.worker
    worker.start_zygote()
    home = resources.enter_context(worker.job_folder())
    kernel_runs: list[KernelRun] = []
    for role, kernel in job.request.kernels.items():
        reference = kernel_runs[0] if kernel_runs else None
        kernel_runs.append(KernelRun(role, kernel, worker.private_folder(home / role), reference))
    for kernel_run in kernel_runs:
        resources.callback(kernel_run.remove_folder)
    resources.callback(close, kernel_runs)
    try:
        _build(job, kernel_runs)
        job.enter(Stage.WAIT_FOR_DEVICE)
        _take_runners(job, kernel_runs)
    except Stopped:
        close(kernel_runs)
    return kernel_runs


def _build(job: JobContext, kernel_runs: list[KernelRun]) -> None:
    """Compile every kernel with no GPU visible, or take it from the cache."""
    job.enter(Stage.BUILD)
    job.worker.ready_compilers([kernel_run.kernel for kernel_run in kernel_runs])
    Building(job.worker, job.request, job.cancelled).build_all(kernel_runs)


def _take_runners(job: JobContext, kernel_runs: list[KernelRun]) -> None:
    """Assign a runner to each kernel, with its CUDA context created before the job asks for the device."""
    folders = [kernel_run.folder for kernel_run in kernel_runs]
    multi_queue_roles, several = job.queues.of(kernel_runs), job.request.processes > 1
    runners = job.worker.acquire_runners(folders, job.cancelled, multi_queue_roles, more_follow=several)
    for kernel_run, runner in zip(kernel_runs, runners, strict=True):
        kernel_run.take_runner(runner)
    for kernel_run in kernel_runs:
        kernel_run.move_into_runner_dir()
