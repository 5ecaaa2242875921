"""One evaluation of a job: what is asked, with which resources, until when, and under which secret."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from domain.job import Stage
from domain.request import Request
from tasks.runtime.job_callbacks import JobCallbacks
from tasks.runtime.stream_isolation import Queues
from tasks.runtime.time_budget import TimeBudget
from tasks.runtime.worker_context import WorkerContext
from validation.seeds import derive_seed


@dataclass(frozen=True)
class JobContext:
    """Handed to every stage of one evaluation; each process and each restart of a job has its own."""

    request: Request
    worker: WorkerContext
    callbacks: JobCallbacks
    queues: Queues
    budget: TimeBudget
    secret: int

    @classmethod
    def of(
        cls,
        request: Request,
        worker: WorkerContext,
        callbacks: JobCallbacks | None = None,
        queues: Queues | None = None,
    ) -> JobContext:
        """A new evaluation, with inputs of its own unless the request replays those of another."""
        secret = int(request.replay_seed, 16) if request.replay_seed is not None else secrets.randbits(256)
        queues = queues or Queues()
        budget = TimeBudget(request.timeout, queues.spent_s)
        return cls(request, worker, callbacks or JobCallbacks(), queues, budget, secret)

    @property
    def weights_seed(self) -> int:
        """The seed under which the kernels are constructed; they learn it.

        It is a digest, so that the inputs cannot be derived from it.
        """
        seed = self.request.determinism_seed
        return derive_seed(self.secret if seed is None else seed, "weights") % 2**31

    @property
    def cancelled(self) -> Callable[[], bool]:
        return self.callbacks.cancelled

    def enter(self, stage: Stage) -> None:
        """Reports that a stage begins. Raises what `on_stage` raises, such as JobCancelled."""
        self.callbacks.on_stage(stage)

    def report_interim_result(self, right: bool) -> None:
        """Reports the verdict so far; without a reference there is none."""
        if self.request.reference is not None:
            self.callbacks.on_interim_result(right)
