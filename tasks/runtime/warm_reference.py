"""Keeps the runner of a reference for the next job with the same one: its context, its libraries, its compiled kernels.

No candidate ever runs in it. Each job has the source loaded again under a seed of its own, because candidates learn the
weights and inputs of their job. A runner in which anything of the last job is left is ended (docs/adr/0037).
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import Lock, Timer

from domain.fault import InfrastructureFault, JobCancelled, KernelFault
from domain.kernel import KernelType
from domain.request import Request
from domain.result import REFERENCE
from profiling.gpu.timing_device import Device
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.runner_pool import Cancelled, PooledRunner, end
from tasks.runtime.stream_isolation import Queues

log = logging.getLogger(__name__)

MAX_JOBS = 64
"""Maximum number of jobs of one runner: what accumulates unseen in a process is bounded so."""
UNLOAD_S = 2.0
"""Maximum time in which a runner drops its kernel, in s."""
END_S, POLL_S = 2.0, 0.002
"""Maximum wait for the end of a killed runner, and the interval of checks, in s. No window runs meanwhile."""


@dataclass(frozen=True)
class WarmRunner:
    """A runner without a submission that has served `jobs` jobs under `key`; `seal` is the digest of its folder."""

    key: str
    runner: PooledRunner
    seal: bytes
    jobs: int

    @property
    def usable(self) -> bool:
        """Whether it is alive and has printed nothing, which would appear in another job's result."""
        return self.runner.session.runner.alive and not self.runner.session.runner.printed()


class WarmReference:
    """The one runner that a pool child keeps.

    It ends after `idle_s` seconds without a job; with 0, none is kept. `quiet` is a block in which no window runs.
    """

    def __init__(self, idle_s: float, device: Device, quiet: Callable[[Cancelled], AbstractContextManager[None]]):
        self.enabled = idle_s > 0
        self._idle_s = idle_s
        self._device = device
        self._quiet = quiet
        self.warm: WarmRunner | None = None
        """The runner that waits for a job; its process may have ended."""
        self._lock = Lock()
        self._timer: Timer | None = None

    def take(self, key: str | None, cancelled: Cancelled, *, memory_is_short: bool) -> WarmRunner | None:
        """The runner for a job whose reference has that key; the job closes it and removes its folder.

        A runner of another reference stays until this job's replaces it, unless device memory is short.
        """
        with self._lock:
            warm = self.warm
            if warm is not None and warm.usable and warm.key == key:
                self._forget()
                warm.runner.session.runner.cancelled = cancelled
                return warm
        lacks_room = memory_is_short or (self._device.is_cuda and not self._device.has_room)
        if warm is not None and (lacks_room or not warm.usable):
            with self._quiet(cancelled):
                self.close()
        return None

    def keep(self, kernel_run: KernelRun) -> None:
        """Keeps the runner of a reference that is marked so, if the job left nothing in it; else its caller ends it."""
        key, kernel_run.keep_key = kernel_run.keep_key, None
        if key is None or (runner := kernel_run.pooled_runner) is None:
            return
        kernel_run.collect_output()
        if why := self._why_not(kernel_run, runner):
            log.info("the reference's runner is not kept: %s", why)
            return
        kernel_run.give_up_runner()
        self.close()
        warm = WarmRunner(key, runner, kernel_run.sealed, kernel_run.earlier_jobs + 1)
        timer = Timer(self._idle_s, self._expire, [warm])
        timer.daemon = True
        with self._lock:
            self.warm, self._timer = warm, timer
        timer.start()

    def close(self) -> None:
        """Ends the runner that is kept, if there is one."""
        with self._lock:
            warm = self.warm
            self._forget()
        if warm is not None:
            end([warm.runner])

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.warm = self._timer = None

    def _why_not(self, kernel_run: KernelRun, runner: PooledRunner) -> str | None:
        """Has the runner drop its kernel; says why it cannot serve another job, None if it can."""
        if kernel_run.earlier_jobs + 1 >= MAX_JOBS:
            return f"it has served {MAX_JOBS} jobs"
        if self._device.is_cuda and (runner.launch_ms is None or not runner.one_queue):
            return "its context is not one of the pool's"
        session = kernel_run.open_window_session.leave()
        session.runner.cancelled = lambda: False
        session.set_deadline(time.monotonic() + UNLOAD_S)
        try:
            left = session.unload()
            if left:
                return f"left in its process: {', '.join(left)}"
            if session.runner.has_descendants or not kernel_run.is_unmodified:
                return "it left processes, or changed files"
        except (KernelFault, InfrastructureFault, JobCancelled) as fault:
            return str(fault)
        session.set_deadline(math.inf)
        kernel_run.collect_output()
        return "it prints" if kernel_run.output else None

    def _expire(self, warm: WarmRunner) -> None:
        """Kills a runner that is still idle. The main thread reaps it later: only that may talk to the zygote."""
        try:
            with self._quiet(lambda: self.warm is not warm), self._lock:
                if self.warm is warm:
                    warm.runner.session.stop()
                    until = time.monotonic() + END_S
                    while warm.runner.session.runner.alive and time.monotonic() < until:
                        time.sleep(POLL_S)
        except JobCancelled:
            return


def reference_key(request: Request, queues: Queues) -> str | None:
    """Equal for jobs that may share a reference's runner; None for a job that needs a new one.

    Only modules of plain torch share runners. Profilers may crash a process, several processes are asked for where a
    time is to be that of more than one, and a restarted job found something wrong with its contexts.
    """
    reference = request.kernels.get(REFERENCE)
    inspects = request.profile or request.artifacts or request.sanitize or request.device_metrics is not None
    restarted = queues.multi_queue_roles or queues.one_call or queues.final
    if reference is None or reference.kernel_type is not KernelType.TORCH or inspects or restarted:
        return None
    if request.processes > 1:
        return None
    shared = [request.owner, reference.to_wire(), request.draw_on]
    return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()
