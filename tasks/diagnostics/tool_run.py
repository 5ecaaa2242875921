"""Runs a kernel once more in a fresh process under an inspection tool, after verdict and time are final.

Tool and kernel are one untrusted process (`sandbox.runner.tool_entry`): the submission controls what the tool writes,
so nothing of it changes an earlier result.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from domain.fault import InfrastructureFault, KernelFault
from domain.result import Status, first_line
from sandbox.isolation.scratch_dir import remove
from sandbox.runner.tool_entry import RUNNER
from sandbox.supervisor.session import Session
from tasks.builds.build_session import deadline_in
from tasks.correctness.input_batches import Arguments
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import KernelRun

NO_GPU = "there is no GPU here: send it to a worker that has one (`gpu`)"
NO_USERS = (
    "runners have no user of their own here, and what a tool starts could not use the GPU: run the worker as root of "
    "its container (docs/security.md)"
)
NO_INPUTS = "the job ended before the kernel had inputs to be called with"
NOT_COMPILED = "the kernel was not compiled"
HANGS = "the kernel did not come to an end in its time, and a tool makes it slower"


class NotInspected(Exception):
    """The tool could not inspect the kernel; the message is the reason."""


class Inspection:
    """Inspects the kernels of one job. `example` has a call's arguments by role, `weights` the shared weights."""

    def __init__(
        self,
        job: JobContext,
        kernel_runs: Sequence[KernelRun],
        example: dict[str, Arguments],
        weights: dict[str, Any],
    ) -> None:
        self.job = job
        self.worker = job.worker
        self.kernel_runs = kernel_runs
        self.candidate = kernel_runs[-1]
        self._example = example
        self._weights = weights

    def unavailable_reason(self) -> str | None:
        """Why tools cannot inspect kernels on this worker; None if they can."""
        if not self.worker.device.is_cuda:
            return NO_GPU
        try:
            return None if self.worker.zygote.children_use_gpu else NO_USERS
        except InfrastructureFault as fault:
            return f"the tool's process could not be started: {fault}"

    def call(self, kernel_run: KernelRun, tool: Sequence[str], seconds: float, warm_up: int) -> tuple[str, str | None]:
        """Call the kernel once under that tool; returns the printed output, and how the kernel failed, if it did.

        Raises NotInspected, JobCancelled.
        """
        if not kernel_run.compiled:
            raise NotInspected(NOT_COMPILED)
        if kernel_run.role not in self._example:
            raise NotInspected(NO_INPUTS)
        if kernel_run.fault is not None and kernel_run.fault.status is Status.TIMEOUT:
            raise NotInspected(HANGS)
        with self._session(kernel_run, [*tool, *RUNNER], seconds) as session:
            fault = self._call(session, kernel_run, warm_up)
            if fault is not None and fault.status is Status.TIMEOUT:
                raise NotInspected(_timeout_message(seconds))
            _wait_for_end(session, seconds)
        failure = first_line(kernel_run.redact_paths(fault.message)) if fault is not None else None
        return kernel_run.redact_paths(session.runner.output.text()), failure

    def program(self, kernel_run: KernelRun, command: Sequence[str], seconds: float) -> str:
        """Run a program that reads the kernel's folder, sandboxed like a builder; returns its printed output.

        Raises NotInspected, JobCancelled.
        """
        with self._session(kernel_run, command, seconds, gpu=False) as session:
            _wait_for_end(session, seconds)
        return kernel_run.redact_paths(session.runner.output.text())

    def _call(self, session: Session, kernel_run: KernelRun, warm_up: int) -> KernelFault | None:
        try:
            reference = self.kernel_runs[0]
            draw_on = kernel_run.loaded.constructed_on if kernel_run.loaded is not None else None
            artifact, seed = kernel_run.build.artifact, self.job.weights_seed
            session.load(kernel_run.kernel, artifact, kernel_run.borrowed, seed, draw_on=draw_on)
            if self._weights and kernel_run is not reference:
                session.load_state(self._weights)
            session.inspect(self._example[kernel_run.role], warm_up)
        except KernelFault as fault:
            return fault
        return None

    @contextmanager
    def _session(
        self, kernel_run: KernelRun, command: Sequence[str], seconds: float, *, gpu: bool = True
    ) -> Iterator[Session]:
        try:
            session = self.worker.start_under_tool(
                kernel_run.folder, command, deadline_in(seconds), self.job.cancelled, gpu=gpu
            )
        except InfrastructureFault as fault:
            raise NotInspected(f"the tool's process could not be started: {fault}") from fault
        try:
            try:
                yield session
            finally:
                session.close()
        except InfrastructureFault as fault:
            printed = first_line(kernel_run.redact_paths(session.runner.output.text()))
            raise NotInspected(f"the tool did not start the kernel, or was ended: {printed or fault}") from fault


def _wait_for_end(session: Session, seconds: float) -> None:
    try:
        session.runner.close_and_wait()
    except KernelFault as fault:
        raise NotInspected(_timeout_message(seconds) if fault.status is Status.TIMEOUT else fault.message) from fault


def _timeout_message(seconds: float) -> str:
    return f"it was stopped after {max(seconds, 0.0):.3g} s: give it less work a call, or launch fewer kernels"


def read_output(path: Path, limit: int) -> bytes | None:
    """The bytes of a file that an untrusted process wrote, after all processes that could change it have ended.

    None if it is no plain file of that process' own. Raises NotInspected if it has more than `limit` bytes.
    """
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(opened)
        is_private = status.st_nlink == 1 and status.st_uid == path.parent.stat().st_uid
        if not stat.S_ISREG(status.st_mode) or not is_private:
            return None
        if status.st_size > limit:
            raise NotInspected(f"the tool's report has {status.st_size >> 20} MiB, and {limit >> 20} MiB are read")
        with os.fdopen(opened, "rb", closefd=False) as file:
            return file.read(limit)
    finally:
        os.close(opened)


def remove_stale(folder: Path, *names: str) -> None:
    """Remove the files that a tool will write, so that a file of the submission cannot pass as its report."""
    for name in names:
        if os.path.lexists(folder / name):
            remove(folder / name)


def seconds_since(since: float) -> float:
    """Seconds since that time.monotonic(), rounded for display."""
    return round(time.monotonic() - since, 3)
