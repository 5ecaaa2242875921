"""A kernel called once more beneath a tool: here a program of the system in a profiler's place, and no GPU."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from domain.fault import JobCancelled
from domain.kernel import Kernel, KernelType
from domain.request import Request
from domain.result import CANDIDATE, REFERENCE
from tasks.diagnostics.tool_run import NO_GPU, Inspection, NotInspected, read_output, remove_stale
from tasks.evaluation.pipeline import run
from tasks.runtime.build_stage import Building
from tasks.runtime.job_callbacks import JobCallbacks
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import Build, KernelRun
from tasks.runtime.worker_context import WorkerContext
from tests.own_worker import own_worker
from tests.tasks.diagnostics.test_ncu_stage_gpu import PRYING

SCALED = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(3))
    def forward(self, x):
        open("called", "a").write(f"{(x * self.w).sum().item()} ")
        BODY
        return x * self.w
"""
TOOL = ("/bin/sh", "-c", '"$@"; echo "it ended with $?" > report', "tool")


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerContext]:
    with own_worker() as made:
        made.start_zygote()
        yield made


@pytest.fixture
def job(worker: WorkerContext) -> Iterator[Path]:
    with worker.job_folder() as folder:
        yield folder


def inspection(
    worker: WorkerContext, job: Path, body: str = "", cancelled: Callable[[], bool] = lambda: False, **more: Any
) -> Inspection:
    kernel_runs = []
    for role in (REFERENCE, CANDIDATE):
        kernel = Kernel(SCALED.replace("BODY", body if role == CANDIDATE else ""), KernelType.TORCH)
        kernel_runs.append(KernelRun(role, kernel, worker.private_folder(job / role)))
    wire = {"kernel": kernel_runs[1].kernel.to_wire(), "num_trials": 1, "timeout": 60}
    request = Request.from_wire(wire)
    Building(worker, request, lambda: False).build_all(kernel_runs)
    example = {role: [torch.ones(3)] for role in (REFERENCE, CANDIDATE)}
    given: dict[str, Any] = {"example": example, "weights": {"w": torch.full((3,), 2.0)}}
    context = JobContext.of(request, worker, JobCallbacks(cancelled=cancelled))
    return Inspection(context, kernel_runs, **given | more)


def test_it_is_called_with_the_jobs_inputs_and_weights_and_the_tool_writes_its_report(
    worker: WorkerContext, job: Path
) -> None:
    look = inspection(worker, job)
    for role, found in (("candidate", "6.0 6.0 6.0 "), ("reference", "0.0 0.0 0.0 ")):
        kernel_run = next(one for one in look.kernel_runs if one.role == role)
        _, failure = look.call(kernel_run, TOOL, 60.0, 2)
        assert failure is None
        assert read_output(kernel_run.folder / "called", 100) == found.encode()
        assert read_output(kernel_run.folder / "report", 100) == b"it ended with 0\n"


def test_a_kernel_that_fails_beneath_the_tool_is_told_of_and_the_report_is_there(
    worker: WorkerContext, job: Path
) -> None:
    look = inspection(worker, job, "raise ValueError('of its own')")
    _, failure = look.call(look.candidate, TOOL, 60.0, 0)
    assert failure is not None and "of its own" in failure
    assert read_output(look.candidate.folder / "report", 100) is not None


@pytest.mark.parametrize(
    ("tool", "seconds", "says"),
    [
        (("/bin/sh", "-c", "echo not permitted; exit 1"), 60.0, "not permitted"),
        (("/bin/sh", "-c", "exec sleep 600"), 1.0, "stopped after 1 s"),
        (("/bin/sh", "-c", '"$@"; exec sleep 600', "tool"), 8.0, "stopped after 8 s"),
        (("/nowhere/ncu",), 60.0, "No such file"),
    ],
)
def test_why_there_is_nothing(
    worker: WorkerContext, job: Path, tool: tuple[str, ...], seconds: float, says: str
) -> None:
    look = inspection(worker, job)
    with pytest.raises(NotInspected) as caught:
        printed, failure = look.call(look.candidate, tool, seconds, 0)
        raise NotInspected(f"{failure} {printed}")  # What the tool has to say is looked at by who called.
    assert says in str(caught.value)
    assert str(worker.folder) not in str(caught.value)


def test_nothing_is_called_without_inputs_or_a_build(worker: WorkerContext, job: Path) -> None:
    look = inspection(worker, job, example={})
    with pytest.raises(NotInspected, match="before the kernel had inputs"):
        look.call(look.candidate, TOOL, 60.0, 0)
    look.candidate.build = Build()
    with pytest.raises(NotInspected, match="not compiled"):
        look.call(look.candidate, TOOL, 60.0, 0)


DETACHED = """import fcntl, os, time
        if os.path.exists("beneath a tool"):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    held = open("held", "w")
                    fcntl.flock(held, fcntl.LOCK_EX)
                    open("holds it", "w").close()
                    while not os.path.exists("report"):
                        time.sleep(0.01)
                    while True:
                        open("report", "a").write("clean")
                os._exit(0)
            while not os.path.exists("holds it"):
                time.sleep(0.01)"""
"""Leaves a descendant that no parent has, which writes into the report as soon as there is one."""


def test_a_detached_descendant_writes_nothing_after_the_end_of_its_tool(worker: WorkerContext, job: Path) -> None:
    look = inspection(worker, job, DETACHED)
    folder = look.candidate.folder
    look.call(look.candidate, ("/bin/sh", "-c", 'touch "beneath a tool"; "$@"; echo found > report', "tool"), 60.0, 0)
    with (folder / "held").open("r") as held:
        # Its lock is gone with it: nothing changes the report any more.
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    report = read_output(folder / "report", 1 << 30)
    assert report is not None and report.startswith(b"found") and report == read_output(folder / "report", 1 << 30)


def test_a_report_that_lay_there_before_the_tool_is_not_the_tools(tmp_path: Path) -> None:
    (tmp_path / "memcheck.txt").write_text("ERROR SUMMARY: 0 errors")
    (tmp_path / "racecheck.txt").mkdir()
    (tmp_path / "initcheck.txt").symlink_to("/etc/passwd")
    remove_stale(tmp_path, "memcheck.txt", "racecheck.txt", "initcheck.txt", "synccheck.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_cancelled_job_stops_it(worker: WorkerContext, job: Path) -> None:
    look = inspection(worker, job, "import time; time.sleep(600)", cancelled=lambda: (job / "now").exists())
    (job / "now").touch()
    with pytest.raises(JobCancelled):
        look.call(look.candidate, TOOL, 60.0, 0)


def test_a_program_reads_what_lies_in_the_folder(worker: WorkerContext, job: Path) -> None:
    look = inspection(worker, job)
    printed = look.program(look.candidate, ["/bin/sh", "-c", "ls kernel.py && cat /etc/passwd"], 30.0)
    assert "kernel.py" in printed and "root:" not in printed


def test_beneath_a_tool_it_has_no_right_that_it_lacks_without(worker: WorkerContext, job: Path) -> None:
    source = PRYING.replace('1 << 20, device="cuda"', "8")
    wire = {"kernel": {"source_code": source, "kernel_type": "torch"}, "num_trials": 1, "timeout": 60}
    plain = run(Request.from_wire(wire), worker).outcome.output
    rights = next(line for line in plain.splitlines() if line.startswith("RIGHTS"))
    look = inspection(worker, job)
    kernel = Kernel(source, KernelType.TORCH)
    kernel_run = KernelRun(CANDIDATE, kernel, worker.private_folder(job / "prying"))
    kernel_run.build = Build(compiled=True)
    printed, failure = look.call(kernel_run, TOOL, 60.0, 0)
    assert failure is None and rights in printed


def test_a_workers_machine_says_why_no_tool_can_look(worker: WorkerContext, job: Path) -> None:
    assert inspection(worker, job).unavailable_reason() == NO_GPU


def test_what_a_stranger_left_is_read_as_a_plain_file_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of somebody else")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * 11)
    assert read_output(tmp_path / "secret", 16) == b"of somebody else"
    assert [read_output(tmp_path / name, 10) for name in ("link", "folder", "pipe", "none")] == [None] * 4
    with pytest.raises(NotInspected, match="are read"):
        read_output(tmp_path / "large", 10)
