"""How a job's calls share the memory that other processes leave of the device."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import pytest
import torch

from domain.fault import InfrastructureFault, KernelFault
from domain.result import Status
from sandbox.supervisor.arena_eviction import ArenaEviction
from tasks.runtime.memory_plan import Arrangement, MemoryPlan
from tasks.runtime.stream_isolation import Queues, RestartJob

GIB = 1 << 30
MEMORY = 80 * GIB


class Card:
    """A card of 80 GiB whose idle contexts take 10 GiB until they are ended."""

    is_cuda = True
    memory = MEMORY

    def __init__(self, held: int) -> None:
        self.free = MEMORY - held - 10 * GIB
        self.ended = 0

    @property
    def left_by_others(self) -> int:
        return self.free

    @property
    def is_crowded(self) -> bool:
        return self.free < 3 / 8 * MEMORY

    def end_idle(self) -> None:
        self.free += 10 * GIB if not self.ended else 0
        self.ended += 1

    def empty_cache(self) -> None: ...


class Worker:
    """A worker of such a card, as far as a plan asks it."""

    usual_memory = MEMORY * 2 // 5
    one_call_memory = MEMORY * 9 // 10

    def __init__(self, card: Card) -> None:
        self.device = card
        self.end_idle_runners = card.end_idle

    def evict_by(self, eviction: ArenaEviction) -> None:
        self.eviction = eviction

    def block_context_creation(self, cancelled: object) -> AbstractContextManager[None]:
        return nullcontext()

    def end_null_runner(self) -> None: ...

    def drop_null_layout(self) -> None: ...


class Job:
    """A job of that worker; `timeout` in s."""

    queues = Queues()
    timeout = 60.0
    cancelled = None

    def __init__(self, card: Card) -> None:
        self.worker = Worker(card)
        self.request = self


class Run:
    """A kernel that holds no device memory; its own session and build."""

    fault = session = None
    seconds = 0.0

    def __init__(self, role: str) -> None:
        self.role = role
        self.open_session = self.build = self

    def evict_by(self, eviction: object) -> None: ...

    def close(self) -> None: ...


class Runner:
    """A session with an arena, or without one; what it gives up is free at once."""

    def __init__(self, card: Card, arena_bytes: int) -> None:
        self.card = card
        self.arena_bytes = arena_bytes

    def detach(self) -> None:
        self.card.free += self.arena_bytes
        self.arena_bytes = 0

    def stop(self) -> None: ...

    def release(self) -> None: ...


def plan_on(card: Card) -> MemoryPlan:
    return MemoryPlan(cast(Any, Job(card)), cast(Any, [Run("reference"), Run("candidate")]))


@pytest.mark.parametrize(
    ("held", "arrangement"), [(0, Arrangement.USUAL), (40, Arrangement.USUAL), (56, Arrangement.ONE_CALL)]
)
def test_a_call_is_arranged_by_what_other_processes_leave(held: int, arrangement: Arrangement) -> None:
    plan = plan_on(Card(held * GIB))
    plan.admit(GIB)  # All copies of the usual arrangement take 12 GiB.
    assert plan.arrangement is arrangement


@pytest.mark.parametrize(("held", "left"), [(0, 20), (40, 20), (60, 5)])
def test_windows_have_their_part_of_what_other_processes_leave(held: int, left: int) -> None:
    assert plan_on(Card(held * GIB)).left_of(20 * GIB) == left * GIB


def test_contexts_that_wait_for_a_job_give_way_first() -> None:
    crowded, roomy = Card(56 * GIB), Card(40 * GIB)
    plan_on(crowded), plan_on(roomy)
    assert (crowded.ended, roomy.ended) == (1, 0)


def test_a_call_that_would_fit_an_empty_device_is_refused_with_what_others_hold() -> None:
    plan_on(Card(0)).admit(20 * GIB)
    with pytest.raises(KernelFault, match="of which other processes hold 57344 MiB") as refused:
        plan_on(Card(56 * GIB)).admit(20 * GIB)
    assert refused.value.status is Status.OUT_OF_MEMORY


def test_small_calls_get_a_leaner_try_where_others_hold_the_device() -> None:
    with pytest.raises(RestartJob), plan_on(Card(56 * GIB)).retried():
        raise torch.OutOfMemoryError
    with pytest.raises(InfrastructureFault, match="of which 71680 MiB were free before"), plan_on(Card(0)).retried():
        raise torch.OutOfMemoryError


@pytest.mark.parametrize(("free", "shortages"), [(17 * GIB, 0), (16 * GIB, 1)])
def test_an_arena_goes_only_if_another_and_the_referees_copy_of_the_outputs_do_not_fit(
    free: int, shortages: int
) -> None:
    card = Card(56 * GIB)
    job = Job(card)
    plan = MemoryPlan(cast(Any, job), cast(Any, [Run("reference"), Run("candidate")]))
    plan.admit(2 * GIB, 2 * GIB)
    plan.admit(6 * GIB)
    card.free = free
    first, second = Runner(card, 14 * GIB), Runner(card, 0)
    job.worker.eviction.make_room(first, 0)
    job.worker.eviction.make_room(second, 14 * GIB)
    assert plan.shortages == shortages
    assert (first.arena_bytes == 0) == (shortages > 0)


@pytest.mark.parametrize(("free", "arenas_left"), [(19 * GIB, 2), (18 * GIB, 1), (4 * GIB, 0)])
def test_arenas_go_until_the_next_inputs_have_room(free: int, arenas_left: int) -> None:
    card = Card(56 * GIB)
    job = Job(card)
    plan = MemoryPlan(cast(Any, job), cast(Any, [Run("reference"), Run("candidate")]))
    plan.admit(6 * GIB, 1 * GIB)
    runners = [Runner(card, 7 * GIB), Runner(card, 7 * GIB)]
    card.free = 80 * GIB
    for runner in runners:
        job.worker.eviction.make_room(runner, 0)
    card.free = free
    plan.make_room_to_draw()
    assert sum(runner.arena_bytes > 0 for runner in runners) == arenas_left
    assert plan.shortages == 2 - arenas_left, "each arena that had to go counts, and no try without one"
    card.free = 0
    for _ in range(3):
        plan.make_room_to_draw()
    assert plan.shortages == 2
