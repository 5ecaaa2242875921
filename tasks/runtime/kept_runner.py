"""Keeps the runner of one kernel for the next job that may have it: its context, its libraries, its compiled kernels.

Only a job with the same key (`tasks.runtime.runner_keys`) gets it. A runner in which anything of the last job is left
is ended (docs/adr/0037, docs/adr/0040).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import Lock, Timer

from domain.fault import InfrastructureFault, JobCancelled, KernelFault
from profiling.gpu.timing_device import Device
from sandbox.isolation.scratch_dir import empty, newest_files
from sandbox.supervisor.session import Session
from tasks.node.idle_processes import IdleProcesses
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.runner_pool import Cancelled, PooledRunner, end

log = logging.getLogger(__name__)

UNLOAD_S = 2.0
"""Maximum time in which a runner drops its kernel, in s."""
END_S, POLL_S = 2.0, 0.002
"""Maximum wait for the end of a killed runner, and the interval of checks, in s. No window runs meanwhile."""
APART_MS = 0.05e-3
"""Maximum difference of launch times of two kept runners in one job, in ms; contexts differ by up to 0.2 µs."""
GROWTH_BYTES = 16 << 20
"""Maximum growth of a process's device memory over its jobs, in bytes: the driver loads torch's kernels on first use.
The stacks of a kernel's threads stay with the context, at 0.27 MB on an H200 for each byte of one stack."""
MOST_BYTES = 4 << 30
"""Maximum device memory of a process that waits for a job, in bytes: a context with its libraries takes less than half.
Torch's own count misses what a source allocates by other means."""

SHOWN_FILES = 3


@dataclass(frozen=True)
class WarmRunner:
    """A runner without a submission that has served `jobs` jobs under `key`.

    `seal` is the digest of its folder, `device_bytes` its device memory before the first job, None if unknown.
    """

    key: str
    runner: PooledRunner
    seal: bytes
    jobs: int
    device_bytes: int | None = None

    @property
    def usable(self) -> bool:
        """Whether it is alive and has printed nothing, which would appear in another job's result."""
        return self.runner.session.runner.alive and not self.runner.session.runner.printed()


class KeptRunner:
    """The one runner of a role that a pool child keeps.

    It serves `max_jobs` jobs at most, and ends after `idle_s` seconds without one. `quiet` is a block in which no
    window runs. Any job of the device may end the runners that are in `idle`, if it lacks device memory. `device_bytes`
    tells a process's device memory by its pid: a runner with more than MOST_BYTES is not kept. With `new_kernels`, each
    job brings another kernel: the folder is emptied between them, and a runner whose device memory grew is not kept.
    """

    def __init__(
        self,
        max_jobs: int,
        idle_s: float,
        device: Device,
        quiet: Callable[[Cancelled], AbstractContextManager[None]],
        idle: IdleProcesses | None = None,
        *,
        new_kernels: bool = False,
        device_bytes: Callable[[int], int | None] = lambda _: None,
    ) -> None:
        self.max_jobs = max_jobs
        self._idle_s = idle_s
        self._device = device
        self._quiet = quiet
        self._idle = idle
        self._new_kernels = new_kernels
        self._device_bytes = device_bytes
        self.warm: WarmRunner | None = None
        """The runner that waits for a job; its process may have ended."""
        self.refusal: str | None = None
        """Why the last job's runner could not serve another job; None if it could."""
        self._lock = Lock()
        self._timer: Timer | None = None

    @property
    def enabled(self) -> bool:
        """Whether a runner may serve more than one job."""
        return self.max_jobs > 1 and self._idle_s > 0

    def take(
        self, key: str | None, cancelled: Cancelled, *, memory_is_short: bool, launch_ms: float | None = None
    ) -> WarmRunner | None:
        """The runner for a job with that key; the job closes it and removes its folder.

        A runner of another key stays until this job's replaces it, unless device memory is short. `launch_ms` is the
        launch time of a context that the job has already: a runner whose own differs by more than APART_MS stays too.
        """
        with self._lock:
            warm = self.warm
            fits = warm is not None and warm.key == key and _launches_alike(warm, launch_ms)
            if warm is not None and fits and self._claim(warm) and warm.usable:
                self._forget()
                warm.runner.session.runner.cancelled = cancelled
                return warm
        device = self._device
        if warm is not None and (memory_is_short or not warm.usable or (device.is_cuda and not device.has_room)):
            with self._quiet(cancelled):
                self.close()
        return None

    def begin(self, kernel_run: KernelRun) -> None:
        """Notes the device memory of a runner before its first job. It asks the driver, for a millisecond."""
        if self._new_kernels and kernel_run.reuse_key is not None and kernel_run.pooled_runner is not None:
            kernel_run.device_bytes = self._device_bytes(kernel_run.pooled_runner.session.runner.pid)

    def empty(self, kernel_run: KernelRun) -> bool:
        """Has the runner drop its kernel, so that nothing of it runs any more; False if it cannot serve another job."""
        runner = kernel_run.pooled_runner
        if kernel_run.reuse_key is None or runner is None or kernel_run.session is None:
            return False
        if not kernel_run.emptied:
            self.refusal = self._why_not(kernel_run, runner)
            if self.refusal is not None:
                log.info("the %s's runner is not kept: %s", kernel_run.role, self.refusal)
                kernel_run.reuse_key = None
                return False
            kernel_run.emptied = True
        return True

    def keep(self, kernel_run: KernelRun) -> None:
        """Keeps the runner of a kernel that is marked so, if the job left nothing in it; else its caller ends it."""
        stays, kernel_run.stays = kernel_run.stays, False
        key, runner = kernel_run.reuse_key, kernel_run.pooled_runner
        if not stays or not self.empty(kernel_run) or key is None or runner is None:
            return
        kernel_run.collect_output()
        if self._new_kernels:
            empty(runner.folder)
        runner.session.set_deadline(math.inf)
        kernel_run.give_up_runner()
        self.close()
        warm = WarmRunner(key, runner, kernel_run.sealed, kernel_run.earlier_jobs + 1, kernel_run.device_bytes)
        timer = Timer(self._idle_s, self._expire, [warm])
        timer.daemon = True
        with self._lock:
            self.warm, self._timer = warm, timer
        timer.start()
        if self._idle is not None:
            self._idle.offer(runner.session.runner.pid)

    def close(self) -> None:
        """Ends the runner that is kept, if there is one."""
        with self._lock:
            warm = self.warm
            self._forget()
        if warm is not None:
            self._claim(warm)
            end([warm.runner])

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.warm = self._timer = None

    def _claim(self, warm: WarmRunner) -> bool:
        return self._idle is None or self._idle.claim(warm.runner.session.runner.pid)

    def _why_not(self, kernel_run: KernelRun, runner: PooledRunner) -> str | None:
        """Has the runner drop its kernel; says why it cannot serve another job, None if it can."""
        if kernel_run.earlier_jobs + 1 >= self.max_jobs:
            return f"it has served {self.max_jobs} jobs"
        if self._device.is_cuda and (runner.launch_ms is None or not runner.one_queue):
            return "its context is not one of the pool's"
        session = kernel_run.leave_windows()
        session.runner.cancelled = lambda: False
        session.set_deadline(time.monotonic() + UNLOAD_S)
        try:
            if left := session.unload() or self._left_outside(kernel_run, session):
                return f"left in its process: {', '.join(left)}"
        except (KernelFault, InfrastructureFault, JobCancelled) as fault:
            return str(fault)
        kernel_run.collect_output()
        return "it prints" if kernel_run.output else None

    def _left_outside(self, kernel_run: KernelRun, session: Session) -> list[str]:
        """The processes, changed files and device memory that a job left, as the referee sees them."""
        before, now = kernel_run.device_bytes, self._device_bytes(session.runner.pid)
        is_changed = not kernel_run.is_unmodified
        newest = newest_files(kernel_run.folder, SHOWN_FILES) if is_changed else []
        found = {
            "a process": session.runner.has_descendants,
            f"changed files (of {newest}, the newest ones)": is_changed,
            "device memory": (before is not None and (now is None or now > before + GROWTH_BYTES))
            or (now is not None and now > MOST_BYTES),
        }
        return [name for name, is_there in found.items() if is_there]

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


def _launches_alike(warm: WarmRunner, launch_ms: float | None) -> bool:
    own_ms = warm.runner.launch_ms
    return launch_ms is None or own_ms is None or abs(own_ms - launch_ms) <= APART_MS
