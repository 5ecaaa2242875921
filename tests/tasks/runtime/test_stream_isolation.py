"""Whose streams run beside each other in a job, and when it begins anew."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from domain.kernel import Kernel, KernelType
from domain.result import CANDIDATE, REFERENCE
from tasks.runtime.kernel_run import Build, KernelRun
from tasks.runtime.stream_isolation import (
    ALL,
    GAIN,
    Queues,
    RestartJob,
    Streams,
    in_one_queue,
    initial_queues,
    roles_with_own_queues,
    run_until_final,
)
from tasks.runtime.time_budget import TimeBudget

SECONDS = 60.0


def kernel(source: str) -> Kernel:
    return Kernel(source, KernelType.TORCH)


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("self.side = torch.cuda.Stream()", True),
        ("with torch.cuda.stream (self.side):", True),
        ("cp.cuda.ExternalStream(pointer)", True),
        ("cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);", True),
        ("auto side = at::cuda::getStreamFromPool();", True),
        ("self.graph = torch.cuda.CUDAGraph()", True),
        ("cudaGraphLaunch(ready, 0)", True),
        ("kernel<<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(x);", False),
        ("stream = torch.cuda.current_stream().cuda_stream", False),
        ("return torch.relu(x)", False),
    ],
)
def test_sources_that_make_streams_or_graphs_begin_apart(source: str, named: bool) -> None:
    assert initial_queues([kernel("return x"), kernel(source)]) == Queues(ALL if named else frozenset())


def kernel_run(
    role: str = CANDIDATE, *, several: bool = False, one_queue: bool = True, build_s: float = 0
) -> KernelRun:
    held: Any = SimpleNamespace(
        role=role,
        pooled_runner=SimpleNamespace(one_queue=one_queue),
        probe=SimpleNamespace(several_streams=several),
        build=Build(seconds=build_s),
    )
    return cast(KernelRun, held)


def restart(step: Callable[[], object]) -> Queues | None:
    """The queues with which that step restarts the job; None where the job goes on."""
    try:
        step()
    except RestartJob as anew:
        return anew.queues
    return None


def streams(queues: Queues, *kernel_runs: KernelRun) -> Streams:
    return Streams(queues, kernel_runs or [kernel_run()], TimeBudget(SECONDS, queues.spent_s))


@pytest.mark.parametrize(("several", "one_queue"), [(False, True), (False, False), (True, False)])
def test_what_runs_as_it_would_elsewhere_goes_on(several: bool, one_queue: bool) -> None:
    own = kernel_run(several=several, one_queue=one_queue)
    assert not in_one_queue(own)
    assert restart(streams(Queues(), kernel_run(REFERENCE), own).check_first_call) is None


def test_streams_in_one_queue_that_nobody_chose_begin_anew() -> None:
    own = kernel_run(several=True)
    with pytest.raises(RestartJob) as anew:
        streams(Queues(), kernel_run(REFERENCE), own).check_first_call()
    assert anew.value.queues.multi_queue_roles == ALL
    assert restart(streams(Queues(frozenset((REFERENCE,)), multi_queue_call_ms=1.0), own).check_first_call) is None


def test_who_is_held_up_apart_is_tried_in_one_queue_and_its_reference_is_not() -> None:
    with pytest.raises(RestartJob) as anew:
        streams(Queues(ALL)).check_setup_delay(0.5)
    assert anew.value.queues.multi_queue_roles == frozenset((REFERENCE,))
    assert anew.value.queues.multi_queue_call_ms == 0.5


def test_who_shares_a_queue_as_everybody_is_held_up_by_what_it_does() -> None:
    assert restart(lambda: streams(Queues()).check_setup_delay(0.5)) is None


@pytest.mark.parametrize(("call_ms", "goes_on"), [(0.4, True), (0.5 * GAIN, True), (0.6, False)])
def test_streams_that_gain_by_running_apart_go_back(call_ms: float, goes_on: bool) -> None:
    tried = streams(Queues(frozenset((REFERENCE,)), multi_queue_call_ms=0.5))
    if goes_on:
        assert restart(lambda: tried.check_call_time(call_ms)) is None
        return
    with pytest.raises(RestartJob) as anew:
        tried.check_call_time(call_ms)
    assert anew.value.queues.multi_queue_roles == ALL and anew.value.queues.final


def test_who_is_held_up_in_one_queue_too_goes_back() -> None:
    with pytest.raises(RestartJob) as anew:
        streams(Queues(frozenset((REFERENCE,)), multi_queue_call_ms=0.5)).check_setup_delay(0.5)
    assert anew.value.queues.final


def test_what_is_settled_stays() -> None:
    settled = streams(Queues(ALL, final=True))
    assert restart(settled.check_first_call) is None
    assert restart(lambda: settled.check_setup_delay(0.5)) is None
    assert restart(lambda: settled.check_call_time(0.5)) is None


def test_a_job_that_has_no_time_to_begin_anew_goes_on() -> None:
    own = kernel_run(several=True, build_s=SECONDS / 2)
    assert restart(streams(Queues(), own).check_first_call) is None
    with pytest.raises(RestartJob) as anew:
        streams(Queues(), kernel_run(several=True, build_s=SECONDS / 4)).check_first_call()
    assert SECONDS / 4 <= anew.value.queues.spent_s < SECONDS / 3


def test_a_job_begins_anew_until_it_is_settled() -> None:
    asked: list[Queues] = []
    after = [Queues(ALL), Queues(frozenset((REFERENCE,)), multi_queue_call_ms=1.0), Queues(ALL, final=True)]

    def run(queues: Queues) -> Any:
        asked.append(queues)
        if after:
            raise RestartJob(after.pop(0))
        return "report"

    assert run_until_final(run, Queues()) == ("report", asked[-1])
    assert len(asked) == 4 and asked[0] == Queues() and asked[-1].final


def test_for_how_long_the_device_was_held_adds_up() -> None:
    with pytest.raises(RestartJob) as anew:
        streams(Queues(ALL, held_s=1.5)).check_setup_delay(0.5)
    assert anew.value.after(2.0).queues.held_s == 3.5


def test_whose_streams_have_queues_of_their_own_is_what_they_were_given() -> None:
    both = [kernel_run(REFERENCE, one_queue=False), kernel_run(CANDIDATE, one_queue=True)]
    assert roles_with_own_queues(both) == [REFERENCE]
    assert Queues(frozenset((CANDIDATE,))).of(both) == [False, True]
