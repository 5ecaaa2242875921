"""Which of the waiting runners a job gets."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from domain.fault import JobCancelled, KernelFault
from domain.result import Status
from sandbox.supervisor.session import Session
from tasks.runtime.runner_pool import PooledRunner, RunnerPool, closest_pair


def waiting(*launch_us: float | None) -> list[PooledRunner]:
    return [PooledRunner(cast(Any, object()), Path(), None if us is None else us / 1e3) for us in launch_us]


@pytest.mark.parametrize(
    ("launch_us", "usual_us", "expected"),
    [
        ((1.69, 1.80, 1.70, 1.83), 1.69, {1.69, 1.70}),
        ((1.69, 1.80, 1.75, 1.81), 1.69, {1.80, 1.81}),
        ((1.80, 1.81, 1.69, 1.70), 1.69, {1.69, 1.70}),
        ((1.80, 1.81, 1.69, 1.70), None, {1.80, 1.81}),
        ((1.69, None, 1.83), 1.69, {1.69, 1.83}),
        ((None, None, None), 1.69, {None}),
    ],
)
def test_two_that_launch_alike_and_as_usual_go_together(
    launch_us: tuple[float | None, ...], usual_us: float | None, expected: set[float | None]
) -> None:
    usual_ms = None if usual_us is None else usual_us / 1e3
    taken = closest_pair(waiting(*launch_us), 2, usual_ms)
    assert len(taken) == 2
    assert {None if one.launch_ms is None else round(one.launch_ms * 1e3, 3) for one in taken} == expected


def test_one_by_itself_is_the_most_usual() -> None:
    (taken,) = closest_pair(waiting(1.80, 1.67, 1.70), 1, 1.69e-3)
    assert taken.launch_ms == pytest.approx(1.70e-3)


def test_who_comes_first_means_nothing() -> None:
    pool = waiting(1.69, 1.70)
    assert len({id(closest_pair(pool, 2, None)[0]) for _ in range(64)}) == 2


NOWHERE = Path("/nonexistent/kernel-eval")


class Waiting:
    """A session without a process, as far as standbys ask for one."""

    def __init__(self, launch_ms: float | None) -> None:
        self.launch = launch_ms
        self.runner = SimpleNamespace(alive=True, cancelled=None)
        self.one_queue: bool | None = None

    def set_deadline(self, deadline: float) -> None: ...

    def open_device(self, *, one_queue: bool = False) -> None:
        self.one_queue = one_queue

    def warm_libraries(self) -> None: ...

    def wait_until_open(self) -> None: ...

    def launch_ms(self) -> float | None:
        return self.launch

    def stop(self) -> None:
        self.runner.alive = False

    close = stop


class Stepwise(Waiting):
    """One that notes what it is asked for; what a launch costs there is told when it is asked for the second time."""

    def __init__(self, log: list[str]) -> None:
        super().__init__(None)
        self.log = log

    def set_deadline(self, deadline: float) -> None:
        self.log.append("set_deadline")

    def open_device(self, *, one_queue: bool = False) -> None:
        self.log.append("open")

    def warm_libraries(self) -> None:
        self.log.append("libraries")

    def launch_ms(self) -> float | None:
        self.log.append("launches")
        told, self.launch = self.launch, 1.7e-3
        return told


def pool(fork: Callable[[], Waiting]) -> RunnerPool:
    return RunnerPool(lambda _, __: cast(Session, fork()), lambda: NOWHERE, lambda _: nullcontext())


def never() -> bool:
    return False


def test_those_that_went_with_their_zygote_are_not_handed_out() -> None:
    standbys = pool(lambda: Waiting(1.7e-3))
    standbys.take([NOWHERE, NOWHERE], None, never)

    def fork(_: object, __: object) -> Session:
        standbys.close()  # As whoever forks does where it finds the zygote dead.
        return cast(Session, Waiting(1.7e-3))

    standbys._fork = fork
    assert all(one.session.runner.alive for one in standbys.take([NOWHERE, NOWHERE], None, never))
    assert all(one.session.runner.alive for one in standbys._waiting)


def test_those_that_went_with_their_zygote_between_jobs_do_not_wait_on() -> None:
    standbys = RunnerPool(lambda _, __: cast(Session, Waiting(1.7e-3)), lambda: NOWHERE, lambda _: nullcontext(), 3, 8)
    standbys.take([NOWHERE, NOWHERE], None, never)
    assert standbys.ready == 3

    def fork(_: object, __: object) -> Session:
        standbys.close()
        return cast(Session, Waiting(1.7e-3))

    standbys._fork = fork
    standbys.refill()
    assert standbys._waiting and all(one.session.runner.alive for one in standbys._waiting)


def test_where_there_is_room_for_no_more_a_job_gets_what_it_needs() -> None:
    room = [2]

    class Small(Waiting):
        fits = True

        def open_device(self, *, one_queue: bool = False) -> None:
            room[0] -= 1
            self.fits = room[0] >= 0

        def wait_until_open(self) -> None:
            if not self.fits:
                raise KernelFault(Status.OUT_OF_MEMORY, "no room for a context")

        def stop(self) -> None:
            if self.runner.alive:
                room[0] = 2
            super().stop()

        close = stop

    for more_follow in (False, True):
        room[0] = 2
        standbys = RunnerPool(
            lambda _, __: cast(Session, Small(1.7e-3)), lambda: NOWHERE, lambda _: nullcontext(), 3, 8
        )
        taken = standbys.take([NOWHERE, NOWHERE], None, never, more_follow=more_follow)
        assert [one.launch_ms for one in taken] == [1.7e-3, 1.7e-3]


def test_those_whose_launches_could_not_be_told_do_not_stay_for_good() -> None:
    launch_ms = iter([1.7e-3, 1.8e-3, None, None, None, 1.7e-3, 1.8e-3, 1.7e-3, 1.8e-3, 1.9e-3])
    standbys = pool(lambda: Waiting(next(launch_ms)))
    standbys.take([NOWHERE, NOWHERE], None, never)
    first, second = standbys.take([NOWHERE, NOWHERE], None, never)
    assert first.launch_ms == second.launch_ms


def test_windows_wait_for_one_step_of_contexts_at_most_and_time_begins_when_it_is_quiet() -> None:
    log: list[str] = []

    @contextmanager
    def quiet(cancelled: Callable[[], bool]) -> Iterator[None]:
        log.append("(")
        yield
        log.append(")")

    standbys = RunnerPool(lambda _, __: cast(Session, Stepwise(log)), lambda: NOWHERE, quiet)
    (made,) = standbys.make(1, never)
    assert " ".join(log) == "( set_deadline open ) ( set_deadline libraries ) ( set_deadline launches launches )"
    assert made.launch_ms == 1.7e-3, "it is asked for once more before it is given up"


def test_who_is_cancelled_between_steps_leaves_no_runner() -> None:
    forked: list[Waiting] = []
    turns = iter([False, True])

    @contextmanager
    def quiet(cancelled: Callable[[], bool]) -> Iterator[None]:
        if next(turns):
            raise JobCancelled
        yield

    def fork() -> Session:
        forked.append(Waiting(1.7e-3))
        return cast(Session, forked[-1])

    with pytest.raises(JobCancelled):
        RunnerPool(lambda _, __: fork(), lambda: NOWHERE, quiet).make(2, never)
    assert [one.runner.alive for one in forked] == [False, False]


def test_between_jobs_as_many_are_made_as_a_job_has_to_choose_from() -> None:
    standbys = RunnerPool(lambda _, __: cast(Session, Waiting(1.7e-3)), lambda: NOWHERE, lambda _: nullcontext(), 3, 8)
    standbys.refill()
    assert standbys.ready == 0, "no job has come yet, and none may"
    left = []
    for needed in (1, 2, 1, 2):
        standbys.take([NOWHERE] * needed, None, never)
        standbys.refill()
        left.append(standbys.ready)
    assert left == [3, 8, 7, 5], "several are made where too few are left to choose from"


def test_where_nobody_waits_for_the_device_none_is_missing() -> None:
    standbys = RunnerPool(lambda _, __: cast(Session, Waiting(1.7e-3)), lambda: NOWHERE, lambda _: nullcontext(), 3, 8)
    asked: list[bool] = []

    def calm() -> bool:
        asked.append(True)
        return len(asked) > 1

    standbys.refill(calm)
    assert standbys.ready == 0 and not asked, "no job has come yet, and none may"
    standbys.take([NOWHERE], None, never)
    standbys.refill(calm)
    assert standbys.ready == 3 and len(asked) == 1, "somebody wants the device"
    standbys.refill(calm)
    assert standbys.ready == 7
    standbys.refill(calm)
    assert standbys.ready == 7 and len(asked) == 2, "none is missing, and nobody has to be asked"


@pytest.mark.parametrize("room", [4, 5, 8])
def test_between_jobs_several_are_made_at_once_now_and_then_also_after_a_pair(room: int) -> None:
    standbys = RunnerPool(
        lambda _, __: cast(Session, Waiting(1.7e-3)), lambda: NOWHERE, lambda _: nullcontext(), 3, room
    )
    made = []
    for needed in (2, *[1] * 12):
        standbys.take([NOWHERE] * needed, None, never)
        before = standbys.ready
        standbys.refill()
        made.append(standbys.ready - before)
    lately = made[-8:]  # When the pair is forgotten.
    assert sum(number > 0 for number in lately) <= 4
    assert all(number != 1 for number in lately)


def test_a_job_that_asks_again_at_once_has_several_made_together_as_far_as_there_is_room() -> None:
    for room, ready in ((8, [6, 5, 4, 3, 2, 1, 6]), (5, [4, 3, 2, 1, 4]), (2, [3, 2, 1, 3])):
        standbys = RunnerPool(
            lambda _, __: cast(Session, Waiting(1.7e-3)), lambda: NOWHERE, lambda _: nullcontext(), 3, room
        )
        left = []
        for _ in ready:
            standbys.take([NOWHERE], None, never, more_follow=True)
            left.append(standbys.ready)
        assert left == ready


def test_on_a_crowded_device_runners_get_their_contexts_when_the_job_has_the_device() -> None:
    crowded = True
    standbys = RunnerPool(
        *(lambda _, __: cast(Session, Waiting(1.7e-3)), lambda: NOWHERE, lambda _: nullcontext(), 3, 8),
        is_crowded=lambda: crowded,
    )
    taken = standbys.take([NOWHERE, NOWHERE], None, never, more_follow=True)
    assert [one.launch_ms for one in taken] == [None, None], "no context was made yet"
    standbys.refill()
    assert standbys.ready == 0
    crowded = False
    standbys.refill()
    assert standbys.ready > 0


def test_no_more_wait_between_jobs_than_there_is_room_for() -> None:
    standbys = RunnerPool(lambda _, __: cast(Session, Waiting(1.7e-3)), lambda: NOWHERE, lambda _: nullcontext(), 2, 2)
    for _ in range(3):
        standbys.take([NOWHERE, NOWHERE], None, never)
        standbys.refill()
        assert standbys.ready == 2


def test_those_that_wait_have_one_queue_and_those_for_several_streams_are_made() -> None:
    made: list[Waiting] = []

    def fork() -> Waiting:
        made.append(Waiting(1.7e-3))
        return made[-1]

    standbys = pool(fork)
    (usual,) = standbys.take([NOWHERE], None, never)
    assert usual.one_queue and all(one.one_queue for one in made)
    waiting, made[:] = standbys.ready, []
    taken = standbys.take([NOWHERE, NOWHERE], None, never, [True, True])
    assert [one.one_queue for one in taken] == [False, False] and not any(one.one_queue for one in made)
    assert standbys.ready == waiting
    assert sum(one.runner.alive for one in made) == 2, "those that were not chosen have ended"


def test_where_there_is_no_room_for_several_queues_a_job_makes_its_own() -> None:
    class Small(Waiting):
        def wait_until_open(self) -> None:
            raise KernelFault(Status.OUT_OF_MEMORY, "no room for a context")

    (taken,) = pool(lambda: Small(1.7e-3)).take([NOWHERE], None, never, [True])
    assert taken.launch_ms is None and not taken.one_queue and taken.session.runner.alive


def test_one_of_each_kind_comes_in_the_order_that_was_asked_for() -> None:
    standbys = pool(lambda: Waiting(1.7e-3))
    for apart in ([True, False], [False, True]):
        assert [one.one_queue for one in standbys.take([NOWHERE] * 2, None, never, apart)] == [not one for one in apart]
