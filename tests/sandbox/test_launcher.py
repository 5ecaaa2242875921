"""Whose fault a runner's death is: the submission's from the moment that it was sent, the service's before."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from domain.fault import InfrastructureFault, KernelFault
from domain.kernel import Kernel, KernelType
from domain.result import Status
from sandbox.runner_process import Runner
from sandbox.session import Session

KERNEL = Kernel("def kernel_fn(x):\n    return x\n", KernelType.TORCH)


def killed(runner: Runner) -> None:
    os.kill(runner.pid, signal.SIGKILL)
    gone, _, _ = select.select([runner._pidfd], [], [], 10.0)
    assert gone


def test_a_runner_that_died_before_it_had_a_submission_is_our_fault(
    session: Callable[..., Session], folder: Path
) -> None:
    opened = session()
    killed(opened.runner)
    with pytest.raises(InfrastructureFault, match="before it had a submission"):
        opened.build(KERNEL)


def test_a_runner_that_died_with_a_submission_is_the_submissions_fault(
    session: Callable[..., Session], folder: Path
) -> None:
    opened = session()
    opened.build(KERNEL)
    killed(opened.runner)
    with pytest.raises(KernelFault) as caught:
        opened.build(KERNEL)
    assert caught.value.status is Status.OUT_OF_MEMORY
