"""Any window of a job may be the one whose answers are looked at in float64, but for the first and for short ones."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from domain.value import leaves
from profiling.window.call_buffers import Slots
from tasks.correctness.precision_sample import PrecisionSample

CALLS = 4
OFTEN = 400


def window(number: float, calls: int = CALLS) -> tuple[Slots, list[torch.Tensor]]:
    slots = Slots(calls, [torch.zeros(3)], (), [torch.zeros(3)], "cpu")
    for call in range(calls):
        slots.fill(call, [[torch.full((3,), number)]])
    return slots, [torch.full((calls, 3), number)]


def drawn(numbers: dict[float, int]) -> float:
    """From which of windows of so many calls the sample is, whose arguments and answers agree."""
    sample = PrecisionSample()
    for number, calls in numbers.items():
        slots, answers = window(number, calls)
        sample.consider(slots, answers, [-one for one in answers])
        slots.image.zero_()  # As the next window's inputs are written there.
    (argument,) = leaves(sample.arguments, torch.Tensor)
    found: Any = argument[0].item()
    assert argument.tolist() == [found] * 3 and sample.expected[0].tolist() == [found] * 3
    assert sample.actual[0].tolist() == [-found] * 3
    return float(found)


def test_every_window_but_the_first_is_as_likely() -> None:
    seen = Counter(drawn({1.0: 1, 2.0: CALLS, 3.0: CALLS, 4.0: CALLS, 5.0: 1}) for _ in range(OFTEN))
    assert set(seen) == {2.0, 3.0, 4.0}
    assert all(abs(count - OFTEN / 3) < OFTEN / 6 for count in seen.values()), seen  # Seven standard deviations.


def test_the_first_is_looked_at_where_there_is_no_other() -> None:
    assert drawn({1.0: 1}) == 1.0
    assert drawn({1.0: CALLS, 2.0: 1}) == 2.0
