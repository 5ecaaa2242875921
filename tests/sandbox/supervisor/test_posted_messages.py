"""Messages whose answers are looked at with the next one."""

import time

import pytest

from backends.base import Artifact
from domain.fault import KernelFault
from domain.kernel import Kernel, KernelType
from domain.result import Status

SLOW_S = 0.4
SLOW = f"""
import time, torch
def kernel_fn(): time.sleep({SLOW_S}); return torch.ones(1)
"""
INSPECT = {"op": "inspect", "args": [], "warm_up": 0}
NO_ARENA = {"op": "layout", "calls": []}


def loaded(runner, source):
    runner.load(Kernel(source, KernelType.TORCH), Artifact(), None, 0)
    return runner.runner


def test_the_next_answer_is_the_next_requests(session):
    runner = loaded(session(), SLOW.replace(str(SLOW_S), "0"))
    runner.post(INSPECT)
    runner.post(INSPECT)
    assert runner.request({"op": "flops", "args": []})["op"] == "flops"
    assert runner.request(INSPECT) == {"op": "ok"}


def test_what_a_posted_message_takes_is_not_the_next_ones_time(session):
    runner = loaded(session(), SLOW)
    runner.post(INSPECT)
    runner.send({"op": "state"})
    assert runner.receive(within=SLOW_S / 2)["op"] == "value"
    runner.send(INSPECT)
    with pytest.raises(TimeoutError):
        runner.receive(within=SLOW_S / 4)


def test_the_fault_of_a_posted_message_is_told_with_the_next_answer(session):
    runner = loaded(session(), SLOW)
    runner.post(NO_ARENA)
    with pytest.raises(KernelFault) as caught:
        runner.request({"op": "state"})
    assert caught.value.status is Status.RUNTIME_ERROR and "no arena" in caught.value.message


def test_a_runner_that_dies_over_a_posted_message_is_gone_at_the_next_answer(session):
    runner = loaded(session(), "import os\ndef kernel_fn(): os.abort()")
    runner.post(INSPECT)
    with pytest.raises(KernelFault) as caught:
        runner.receive()
    assert caught.value.status is Status.CRASHED and "SIGABRT" in caught.value.message


def test_a_posted_message_that_is_never_answered_ends_at_the_deadline(session):
    runner = loaded(session(), "def kernel_fn():\n    while True: pass")
    runner.deadline = time.monotonic() + 1.0
    runner.post(INSPECT)
    with pytest.raises(KernelFault) as caught:
        runner.receive(within=60.0)
    assert caught.value.status is Status.TIMEOUT


def test_after_the_fault_of_a_posted_message_no_answer_is_taken_for_anothers(session):
    runner = loaded(session(), SLOW)
    runner.post(NO_ARENA)
    with pytest.raises(KernelFault, match="no arena"):
        runner.request({"op": "state"})
    with pytest.raises(KernelFault, match="stopped before"):
        runner.request({"op": "flops", "args": []})  # Else told what the state is.


FREES = """
import torch
from sandbox.runner.runner import Runner
freed = iter([5 << 30, -1, "7", 3 << 30, 0])
def inspect(self, message):
    return {"op": "ok", "freed": next(freed)}
Runner.inspect = inspect
def kernel_fn(): return torch.ones(1)
"""


def test_what_any_reply_says_of_freed_memory_is_taken_once(session):
    made = session()
    runner = loaded(made, FREES)
    before = time.monotonic()
    runner.post(INSPECT)
    for _ in range(4):
        runner.request(INSPECT)
    freed = made.take_freed()
    assert [size for _, size in freed] == [5 << 30, 3 << 30]
    assert before <= freed[0][0] <= freed[1][0] <= time.monotonic()
    assert made.take_freed() == []
