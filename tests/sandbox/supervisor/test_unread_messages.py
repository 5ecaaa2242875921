"""A runner that does not read what it is sent: the referee waits for it no longer than for an answer."""

import time
from threading import Event, Timer

import pytest

from backends.base import Artifact
from domain.fault import JobCancelled, KernelFault
from domain.kernel import Kernel, KernelType
from domain.result import Status

DEAF = """
import os, time, torch, sandbox.runner.runner
def wait(): {wait}
def inputs(self, message):
    part = {{"$": "tensor", "dtype": "float32", "shape": [1], "strides": [1], "offset": 0}}
    self.channel.send({{"op": "value", "value": [[part] * 20_000], "note": None}})
    self.channel.receive()  # Of the arena that they need, which is not looked at.
    self.channel.send({{"op": "ok"}})
    wait()
sandbox.runner.runner.Runner.inputs = inputs
def kernel_fn(): return torch.ones(1)
"""
"""Has the referee send more than a socket takes, and reads none of it."""


@pytest.mark.parametrize(
    ("wait", "seconds", "status"),
    [
        ("time.sleep(60)", 2.0, Status.TIMEOUT),
        # What it has started keeps its end open.
        ("os.fork() or time.sleep(60); time.sleep(0.5); os.abort()", 60.0, Status.CRASHED),
    ],
)
def test_a_runner_that_does_not_read_what_it_is_sent_holds_nobody_up(session, wait, seconds, status):
    runner = session()
    runner.load(Kernel(DEAF.format(wait=wait), KernelType.TORCH), Artifact(), None, 0)
    runner.set_deadline(time.monotonic() + seconds)
    with pytest.raises(KernelFault) as caught:
        runner.inputs([1], infer=False)
    assert caught.value.status is status


def test_a_cancelled_job_does_not_wait_for_a_runner_to_read(session):
    cancelled = Event()
    runner = session(cancelled=cancelled.is_set)
    runner.load(Kernel(DEAF.format(wait="time.sleep(60)"), KernelType.TORCH), Artifact(), None, 0)
    timer = Timer(1.0, cancelled.set)
    timer.start()
    with pytest.raises(JobCancelled):
        runner.inputs([1], infer=False)
    timer.join()
