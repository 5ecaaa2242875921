"""A store behind an output shows, whatever is stored."""

from __future__ import annotations

import pytest
import torch

from profiling.slots import GUARD, Slots

CALLS, SIZE = 3, 10


def layout(dtype: torch.dtype) -> Slots:
    """Calls with one input and one output, as long as each other."""
    given = torch.ones(SIZE, dtype=dtype)
    slots = Slots(CALLS, [given, torch.empty_like(given)], (1,), [], "cpu")
    slots.fill_alike([given, torch.full_like(given, 7)])
    return slots


def region(slots: Slots, name: str, call: int, bytes_past_it: int) -> torch.Tensor:
    """That much behind a call's input or output, in the image."""
    ref = {"input": slots.args[call][0], "output": slots.outputs[call][0]}[name]
    end = ref.offset + ref.span
    return slots.image[end : end + bytes_past_it]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.uint8, torch.float64])
def test_what_lies_behind_an_input_does_not_lie_behind_an_output(dtype: torch.dtype) -> None:
    slots = layout(dtype)
    assert not slots.overrun(slots.image[slots.inputs_end :])
    for call in range(CALLS):
        snapshot = slots.image[slots.inputs_end :].clone()
        ref = slots.outputs[call][0]
        behind = ref.offset + ref.span - slots.inputs_end
        # A whole block too much, copied from behind the input: as a kernel without masks does.
        snapshot[behind : behind + GUARD] = region(slots, "input", call, GUARD)
        assert slots.overrun(snapshot)


def test_behind_an_input_is_poison() -> None:
    slots = layout(torch.float32)
    assert region(slots, "input", 1, 64).view(torch.float32).isnan().all()


def test_guards_are_of_no_pattern() -> None:
    slots = layout(torch.float32)
    drawn = torch.stack([region(slots, "output", call, GUARD) for call in range(CALLS)])
    assert len(drawn.unique()) > 50
    assert not torch.equal(
        drawn, torch.stack([region(layout(torch.float32), "output", c, GUARD) for c in range(CALLS)])
    )


def called_with(*args: object) -> Slots:
    return Slots(CALLS, list(args), (), [torch.ones(SIZE)], "cpu")


def test_inputs_that_are_the_same_are_copied_in_one_go() -> None:
    one, other = called_with(torch.ones(SIZE), 2.0), called_with(torch.ones(SIZE), 2.0)
    for call in range(CALLS):
        one.fill(call, [torch.full((SIZE,), float(call)), 2.0])
    assert other.takes_as(one)
    guards = other.image[other.inputs_end :].clone()
    other.fill_as(one)
    assert other.filled and [other.arguments(call)[0][0].item() for call in range(CALLS)] == [0.0, 1.0, 2.0]
    assert torch.equal(other.image[other.inputs_end :], guards)
    for unlike in (called_with(torch.ones(SIZE), 3.0), called_with(torch.ones(SIZE + 1), 2.0), layout(torch.float32)):
        assert not unlike.takes_as(one)
