"""Which of the waiting runners a job gets."""

from typing import Any, cast

import pytest

from tasks.standbys import Standby, alike


def waiting(*launch_us: float | None) -> list[Standby]:
    return [Standby(cast(Any, object()), None if us is None else us / 1e3) for us in launch_us]


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
    taken = alike(waiting(*launch_us), 2, usual_ms)
    assert len(taken) == 2
    assert {None if one.launch_ms is None else round(one.launch_ms * 1e3, 3) for one in taken} == expected


def test_one_by_itself_is_the_most_usual() -> None:
    (taken,) = alike(waiting(1.80, 1.67, 1.70), 1, 1.69e-3)
    assert taken.launch_ms == pytest.approx(1.70e-3)


def test_who_comes_first_means_nothing() -> None:
    pool = waiting(1.69, 1.70)
    assert len({id(alike(pool, 2, None)[0]) for _ in range(64)}) == 2
