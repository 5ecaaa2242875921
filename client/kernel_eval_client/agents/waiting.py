"""A job handed in and waited for: its progress is told, and it is cancelled with the call that asked for it."""

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
"""How long a stage may have changed before it is told."""
SILENCE_S = 4.0
"""After so long without a change the same is told again: it goes on."""
CANCEL_S = 10.0

Tell = Callable[[float, str], Awaitable[None]]
"""Told seconds since the beginning, and in words where the job stands."""


async def judged(client: AsyncClient, submission: Submission, wait_s: float, tell: Tell) -> Job:
    """The job after at most `wait_s` seconds. It is cancelled where the waiting is, or fails: else nobody asks."""
    named = submission.named()
    job = await _handed_in(client, named)
    try:
        try:
            return await followed(client, job, wait_s, tell)
        except UnknownJob:  # The service has lost the record: once more, under the same key.
            job = await _handed_in(client, named)
            return await followed(client, job, wait_s, tell)
    except BaseException:  # Cancelled, or nobody is there to be told: no answer will name the job.
        with anyio.move_on_after(CANCEL_S, shield=True), suppress(KernelEvalError):
            await client.cancel(job.job_id)
        raise


async def followed(client: AsyncClient, job: Job, wait_s: float, tell: Tell) -> Job:
    """The job once it has ended, or as it is after so many seconds."""
    began, told, told_at = time.monotonic(), "", -SILENCE_S
    while True:
        passed = time.monotonic() - began
        stands = brief.stands(job)
        if stands != told or passed - told_at >= SILENCE_S:
            await tell(passed, f"job {job.job_id} is {stands}, {passed:.0f} s")
            told, told_at = stands, passed
        if job.done or passed >= wait_s:
            return job
        try:
            job = await client.settled(job.job_id, max_wait_s=min(STEP_S, wait_s - passed))
        except StillRunning as error:
            job = Job.from_dict(error.problem)


async def _handed_in(client: AsyncClient, submission: Submission) -> Job:
    # To the end, whatever is cancelled: a request that is on its way makes a job, and its id comes with the answer.
    with anyio.CancelScope(shield=True):
        job = await client.submit(submission)
    return job
