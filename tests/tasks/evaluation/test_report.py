"""The verdict about one kernel, by what is known of it and of the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from domain.fault import KernelFault
from domain.kernel import Kernel, KernelType
from domain.request import Request
from domain.result import CANDIDATE, REFERENCE, Comparison, Lack, Status
from tasks.evaluation.report import outcome
from tasks.runtime.kernel_run import KernelRun


@pytest.mark.parametrize(
    ("passed", "verdict"),
    [(None, Status.REFERENCE_FAILED), (True, Status.REFERENCE_FAILED), (False, Status.WRONG_RESULT)],
)
def test_a_wrong_answer_stands_whatever_becomes_of_the_reference(passed: bool | None, verdict: Status) -> None:
    reference = KernelRun(REFERENCE, Kernel("", KernelType.TORCH), Path("/nowhere"))
    candidate = KernelRun(CANDIDATE, Kernel("", KernelType.TORCH), Path("/nowhere"), reference)
    reference.fault = KernelFault(Status.TIMEOUT, "it took too long")
    if passed is not None:
        candidate.comparison = Comparison(passed, 10, 10, 0.1, 0.2, 0.01, 0, 100, 0.01, 0.01)
    request = Request(candidate.kernel, reference.kernel)
    assert outcome(request, candidate, {}, outcome(request, reference, {})).status is verdict


@pytest.mark.parametrize(
    ("said", "on_gpu", "told"),
    [(Lack.GPU, True, None), (Lack.GPU, False, Lack.GPU), (Lack.PART, True, Lack.PART), (None, False, None)],
)
def test_no_runner_on_a_gpu_says_that_there_is_none(said: Lack | None, on_gpu: bool, told: Lack | None) -> None:
    candidate = KernelRun(CANDIDATE, Kernel("", KernelType.TORCH), Path("/nowhere"))
    candidate.fault = KernelFault(Status.UNSUPPORTED, "it lacks something", lacks=said)
    assert outcome(Request(candidate.kernel), candidate, {}, on_gpu=on_gpu).worker_lacks is told
