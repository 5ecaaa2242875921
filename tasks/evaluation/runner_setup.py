"""The work of a job before it has the device: it builds its kernels and takes a runner for each."""

from __future__ import annotations

from contextlib import ExitStack

from domain.job import Stage
from tasks.runtime.build_stage import Building
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import KernelRun, Stopped
from tasks.runtime.runner_keys import candidate_key, reference_key
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
    Building(job.worker, job.request, job.cancelled).build_all(kernel_runs)


def _take_runners(job: JobContext, kernel_runs: list[KernelRun]) -> None:
    """Assign a runner to each kernel, its CUDA context made before the job asks for the device.

    The reference's is the one of an earlier job, if one was kept. A candidate without host code may have such a
    runner, too.
    """
    launch_ms = _take_kept_runners(job, kernel_runs)
    new = [kernel_run for kernel_run in kernel_runs if kernel_run.session is None]
    folders, multi_queue_roles = [kernel_run.folder for kernel_run in new], job.queues.of(new)
    runners = job.worker.acquire_runners(
        folders, job.cancelled, multi_queue_roles, more_follow=job.request.processes > 1, launch_ms=launch_ms
    )
    for kernel_run, runner in zip(new, runners, strict=True):
        kernel_run.take_runner(runner)
        job.worker.kept_runner(kernel_run.role).begin(kernel_run)
    for kernel_run in kernel_runs:
        kernel_run.move_into_runner_dir()


def _take_kept_runners(job: JobContext, kernel_runs: list[KernelRun]) -> float | None:
    """Assign runners of earlier jobs; returns the launch time in ms of one of them, None if unknown."""
    launch_ms, worker = None, job.worker
    for kernel_run in kernel_runs:
        is_candidate = kernel_run is kernel_runs[-1]
        kept = worker.kept_runner(kernel_run.role)
        key = (candidate_key if is_candidate else reference_key)(job.request, job.queues) if kept.enabled else None
        kernel_run.reuse_key = key
        asked = None if kernel_run.role in job.queues.new_process_roles else key
        warm = kept.take(asked, job.cancelled, memory_is_short=job.queues.one_call, launch_ms=launch_ms)
        if warm is None:
            continue
        if is_candidate:
            kernel_run.take_runner(warm.runner)  # Its folder is empty, for this job's build.
        else:
            kernel_run.take_warm_runner(warm.runner, warm.seal)
        kernel_run.earlier_jobs, kernel_run.device_bytes = warm.jobs, warm.device_bytes
        launch_ms = launch_ms or warm.runner.launch_ms
    return launch_ms
