"""Which grades of inputs decide a verdict."""

from __future__ import annotations

import pytest

from domain.inputs import InputGrade, Strictness


@pytest.mark.parametrize("strictness", Strictness)
def test_the_inputs_of_the_task_always_decide(strictness: Strictness) -> None:
    assert strictness.decides_on(InputGrade.AS_DRAWN) and strictness.decides_on(InputGrade.AS_STRUCTURED)


def test_inputs_beyond_the_task_decide_where_that_is_asked_for() -> None:
    assert Strictness.ROBUST.decides_on(InputGrade.BEYOND) and not Strictness.TASK.decides_on(InputGrade.BEYOND)
