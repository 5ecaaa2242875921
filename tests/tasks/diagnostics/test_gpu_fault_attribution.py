"""A failure that names the card is looked into with a runner of our own, before the kernel is blamed or the card."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from domain.fault import InfrastructureFault, KernelFault
from domain.kernel import Kernel, KernelType
from domain.request import Request
from domain.result import Status
from sandbox.supervisor.session import Session
from tasks.diagnostics.gpu_fault_attribution import raise_tested_card_fault
from tasks.evaluation.pipeline import run
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.worker_context import WorkerContext
from tests.own_worker import own_worker

ECC = "running: AcceleratorError: CUDA error: uncorrectable ECC error encountered"
OF_THE_CARD = [
    ECC,
    "loading: RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    "loading: RuntimeError: No CUDA GPUs are available",
    "loading: CUDARuntimeError: cudaErrorDevicesUnavailable: all CUDA-capable devices are busy or unavailable",
    "loading: RuntimeError: CUDA driver initialization failed: CUDA_ERROR_NO_DEVICE",
    "loading: AcceleratorError: CUDA error: initialization error",
    "running: RuntimeError: CUDA error: unknown error",
    "running: RuntimeError: NVML: GPU is lost",
    "running: the GPU has fallen off the bus",
]
OF_A_KERNEL = [
    "running: AcceleratorError: CUDA error: an illegal memory access was encountered",
    "running: AcceleratorError: CUDA error: unspecified launch failure",
    "running: RuntimeError: CUDA error: misaligned address",
    "running: RuntimeError: CUDA error: invalid device ordinal",
    "loading: RuntimeError: CUDA error: invalid configuration argument",
    "running: ValueError: initialization error of my own",
    "running: KeyError: 'unavailable'",
]


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerContext]:
    with own_worker() as opened:
        yield opened


class Card:
    """What becomes of a runner that makes its context on it; in place of a card that fails."""

    def __init__(self, patch: pytest.MonkeyPatch, worker: WorkerContext) -> None:
        self.fault: KernelFault | None = None
        self.asked = 0
        patch.setattr(worker.device, "is_cuda", True)
        patch.setattr(Session, "open_device", lambda session: None)
        patch.setattr(Session, "warm_libraries", lambda session: None)
        patch.setattr(Session, "wait_until_open", lambda session: self.answer())

    def answer(self) -> None:
        self.asked += 1
        if self.fault is not None:
            raise self.fault


@pytest.fixture
def card(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> Card:
    return Card(monkeypatch, worker)


def failed(message: str, status: Status = Status.RUNTIME_ERROR, printed: str = "") -> KernelRun:
    kernel_run = KernelRun("candidate", Kernel("", KernelType.TORCH), Path("/nowhere"))
    kernel_run.fault = KernelFault(status, message)
    kernel_run.output = printed
    return kernel_run


def blame(worker: WorkerContext, *kernel_runs: KernelRun) -> None:
    raise_tested_card_fault(kernel_runs, JobContext.of(Request(kernel_runs[0].kernel), worker))
    assert not (worker.folder / "test").exists()


@pytest.mark.parametrize("message", OF_THE_CARD)
def test_where_our_own_runner_fails_too_it_is_the_card(worker: WorkerContext, card: Card, message: str) -> None:
    card.fault = KernelFault(Status.RUNTIME_ERROR, "answering the referee: RuntimeError: CUDA error: unknown error")
    with pytest.raises(InfrastructureFault, match="in a runner without a submission too"):
        blame(worker, failed(message))
    assert not (worker.folder / "test").exists()


def test_where_our_own_runner_works_it_is_the_kernel(worker: WorkerContext, card: Card) -> None:
    blame(worker, failed(ECC))
    assert card.asked == 2, "for a context, and to compute in it"


def test_memory_that_somebody_else_holds_says_nothing_of_the_card(worker: WorkerContext, card: Card) -> None:
    card.fault = KernelFault(Status.OUT_OF_MEMORY, "CUDA out of memory")
    blame(worker, failed(ECC))
    assert card.asked == 1


@pytest.mark.parametrize("message", OF_A_KERNEL)
def test_what_a_wrong_kernel_causes_is_not_looked_into(worker: WorkerContext, card: Card, message: str) -> None:
    blame(worker, failed(message), failed(ECC, Status.WRONG_RESULT))
    assert card.asked == 0


def test_what_a_process_printed_before_it_aborted_counts(worker: WorkerContext, card: Card) -> None:
    blame(worker, failed("the kernel's process crashed: SIGABRT", Status.CRASHED, f"terminate called: what(): {ECC}"))
    assert card.asked == 2


def test_on_the_cpu_there_is_no_card_to_blame(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.device, "is_cuda", False)
    monkeypatch.setattr(Session, "open_device", lambda session: pytest.fail("asked"))
    blame(worker, failed(ECC))


@pytest.mark.gpu
def test_a_kernel_that_only_says_so_is_blamed_on_a_card_that_works(worker: WorkerContext) -> None:
    raises = f"def kernel_fn(x):\n    raise RuntimeError({ECC!r})\n\ndef get_inputs():\n    return [torch.zeros(8)]\n"
    request = Request(Kernel(raises, KernelType.TORCH), num_trials=1, timeout=60)
    outcome = run(request, worker).outcome
    assert (outcome.status, ECC in (outcome.message or "")) == (Status.RUNTIME_ERROR, True)
