"""A reference without memory is to blame for that itself, unless its candidate held most of the device's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from domain.fault import KernelFault
from domain.kernel import Kernel, KernelType
from domain.request import Request
from domain.result import CANDIDATE, REFERENCE, Status
from tasks.diagnostics.oom_attribution import attribute_memory_fault
from tasks.evaluation.pipeline import run
from tasks.runtime.kernel_run import KernelRun
from tests.own_worker import own_worker

TOTAL = 100 << 30
REFERENCE_SOURCE = """
class Model(nn.Module):
    def forward(self, x):
        torch.empty(8 << 30, dtype=torch.uint8, device=x.device)
        return x * 2
def get_inputs():
    return [torch.randn(1024, device="cuda")]
"""
GREEDY_SOURCE = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        free, _ = torch.cuda.mem_get_info()
        self.taken = torch.empty(free - (4 << 30), dtype=torch.uint8, device="cuda")
    def forward(self, x):
        return x * 2
"""


class Device:
    """In a GPU's place: what is free of it, as kernel runs end."""

    def __init__(self, **held_gib: int) -> None:
        self.held = {role: gib << 30 for role, gib in held_gib.items()}
        self.is_cuda = True
        self.memory = TOTAL

    @property
    def free(self) -> int:
        return TOTAL - sum(self.held.values())


class Process:
    """In a session's place: what it holds is free when it has ended."""

    def __init__(self, device: Device, role: str) -> None:
        self.device, self.role = device, role
        self.runner = SimpleNamespace(output=SimpleNamespace(text=lambda: ""))

    def close(self) -> None:
        self.device.held[self.role] = 0


def kernel_runs(tmp_path: Path, device: Device, status: Status) -> list[KernelRun]:
    both = [KernelRun(role, Kernel("", KernelType.TORCH), tmp_path / role) for role in (REFERENCE, CANDIDATE)]
    for kernel_run in both:
        process: Any = Process(device, kernel_run.role)
        kernel_run.session = process
    both[0].fault = KernelFault(status, "of its own")
    return both


@pytest.mark.parametrize(
    ("held", "status", "blamed"),
    [
        ({"candidate": 90, "reference": 2}, Status.OUT_OF_MEMORY, True),
        ({"candidate": 40, "reference": 2}, Status.OUT_OF_MEMORY, False),
        ({"candidate": 20, "reference": 70}, Status.OUT_OF_MEMORY, False),
        ({"candidate": 90, "reference": 2}, Status.RUNTIME_ERROR, False),
    ],
)
def test_who_held_most_of_the_memory_is_out_of_it(
    tmp_path: Path, held: dict[str, int], status: Status, blamed: bool
) -> None:
    device = Device(**held)
    worker: Any = SimpleNamespace(device=device)
    reference, candidate = kernel_runs(tmp_path, device, status)
    attribute_memory_fault([reference, candidate], worker)
    if blamed:
        assert reference.fault is None and candidate.fault is not None
        assert candidate.fault.status is Status.OUT_OF_MEMORY and "92160 MiB" in candidate.fault.message
    else:
        assert candidate.fault is None and reference.fault is not None and reference.fault.status is status


def test_a_kernel_alone_has_nobody_to_blame(tmp_path: Path) -> None:
    device = Device(candidate=90)
    worker: Any = SimpleNamespace(device=device)
    (_, candidate) = kernel_runs(tmp_path, device, Status.RUNTIME_ERROR)
    candidate.fault = KernelFault(Status.OUT_OF_MEMORY, "its own")
    attribute_memory_fault([candidate], worker)
    assert candidate.fault.message == "its own" and candidate.session is not None


@pytest.mark.gpu
def test_who_takes_a_cards_memory_is_out_of_it() -> None:
    kernels = {
        role: {"kernel_type": "torch", "source_code": source}
        for role, source in (("reference", REFERENCE_SOURCE), ("kernel", GREEDY_SOURCE))
    }
    with own_worker() as worker:
        request = Request.from_wire({**kernels, "num_trials": 5, "timeout": 60})
        report = run(request, worker)
    assert report.outcome.status is Status.OUT_OF_MEMORY, report.outcome
    assert report.reference is not None and report.reference.status is Status.PASSED
