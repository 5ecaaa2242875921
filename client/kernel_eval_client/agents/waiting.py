"""Submits a job and waits for it: reports its progress, and cancels it together with the caller's call."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from kernel_eval_client.agents import brief
from kernel_eval_client.async_client import AsyncClient
from kernel_eval_client.errors import KernelEvalError, StillRunning, UnknownJob
from kernel_eval_client.job import Job
from kernel_eval_client.submission import Submission

STEP_S = 1.0
"""Maximum time between a change of stage and its report, in s."""
SILENCE_S = 4.0
"""Maximum time between two reports, in s: a report of the same state shows that the job goes on."""
CANCEL_S = 10.0

ProgressReporter = Callable[[float, str], Awaitable[None]]
"""A function that gets the seconds since the beginning and the job's state in words."""


async def submit_and_wait(client: AsyncClient, submission: Submission, wait_s: float, report: ProgressReporter) -> Job:
    """The submitted job after at most `wait_s` seconds. If the wait is cancelled or fails, the job is cancelled too."""
    submission_with_key = submission.with_idempotency_key()
    job = await _submit(client, submission_with_key)
    try:
        try:
            return await wait_for(client, job, wait_s, report)
        except UnknownJob:  # The service has lost the record: submit again, with the same key.
            job = await _submit(client, submission_with_key)
            return await wait_for(client, job, wait_s, report)
    except BaseException:  # The caller is gone or gets an error: no reply will name the job.
        with anyio.move_on_after(CANCEL_S, shield=True), suppress(KernelEvalError):
            await client.cancel(job.job_id)
        raise


async def wait_for(client: AsyncClient, job: Job, wait_s: float, report: ProgressReporter) -> Job:
    """The job when it has ended, or its state after `wait_s` seconds."""
    began, reported, reported_at = time.monotonic(), "", -SILENCE_S
    while True:
        passed = time.monotonic() - began
        state = brief.describe_state(job)
        if state != reported or passed - reported_at >= SILENCE_S:
            await report(passed, f"job {job.job_id} is {state}, {passed:.0f} s")
            reported, reported_at = state, passed
        if job.done or passed >= wait_s:
            return job
        try:
            job = await client.wait_for_job(job.job_id, max_wait_s=min(STEP_S, wait_s - passed))
        except StillRunning as error:
            job = Job.from_dict(error.problem)


async def _submit(client: AsyncClient, submission: Submission) -> Job:
    # Shielded from cancellation: the request creates a job, and only the response has the id to cancel it by.
    with anyio.CancelScope(shield=True):
        job = await client.submit(submission)
    return job
