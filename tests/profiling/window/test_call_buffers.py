"""A store behind an output shows, whatever is stored."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from domain.value import TensorRef, leaves
from profiling.gpu.timing_device import Device
from profiling.window import call_buffers
from profiling.window.buffer_transfers import write_image
from profiling.window.call_buffers import GUARD, POISON, Slots
from sandbox.protocol.arena import HostArena, stored_shape, view
from validation.compare.bitwise import identical

CALLS, SIZE = 3, 10


def layout(dtype: torch.dtype) -> Slots:
    """Calls with one input and one output, as long as each other."""
    given = torch.ones(SIZE, dtype=dtype)
    slots = Slots(CALLS, [given, torch.empty_like(given)], (1,), [], "cpu")
    slots.broadcast([given, torch.full_like(given, 7)])
    return slots


def region(slots: Slots, name: str, call: int, bytes_past_it: int) -> torch.Tensor:
    """That much behind a call's input or output, in the image."""
    place = {"input": slots.arguments(call)[0], "output": slots.read(slots.image[slots.inputs_end :])[call][0]}[name]
    end = place.data_ptr() - slots.image.data_ptr() + place.nbytes
    return slots.image[end : end + bytes_past_it]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.uint8, torch.float64])
def test_what_lies_behind_an_input_does_not_lie_behind_an_output(dtype: torch.dtype) -> None:
    slots = layout(dtype)
    assert not slots.overrun(slots.image[slots.inputs_end :])
    for call in range(CALLS):
        snapshot = slots.image[slots.inputs_end :].clone()
        behind = region(slots, "output", call, GUARD).storage_offset() - slots.inputs_end
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
        one.fill(call, [[torch.full((SIZE,), float(call)), 2.0]])
    assert other.can_copy_from(one)
    guards = other.image[other.inputs_end :].clone()
    other.copy_from(one)
    assert other.filled and [other.arguments(call)[0][0].item() for call in range(CALLS)] == [0.0, 1.0, 2.0]
    assert torch.equal(other.image[other.inputs_end :], guards)
    for unlike in (called_with(torch.ones(SIZE), 3.0), called_with(torch.ones(SIZE + 1), 2.0), layout(torch.float32)):
        assert not unlike.can_copy_from(one)


def with_output(kind: torch.dtype, *, blank: bool) -> Slots:
    example = [torch.ones(SIZE), torch.zeros(SIZE, dtype=kind)]
    return Slots(CALLS, example, (1,), [], "cpu", blank=(1,) if blank else ())


def test_a_blank_output_is_written_once_and_no_reason_to_fill_twice() -> None:
    one, other = with_output(torch.int32, blank=True), with_output(torch.int32, blank=True)
    poisoned = torch.full((SIZE,), -1515870811, dtype=torch.int32)
    assert not other.can_copy_from(one)  # Its outputs hold no poison yet.
    for layout in (one, other):
        for call in range(CALLS):
            layout.fill(call, [[torch.zeros(SIZE), poisoned]])
    assert other.can_copy_from(one)
    for call in range(CALLS):
        # What is given for it later does not matter: it is the same in every set.
        one.fill(call, [[torch.full((SIZE,), float(call)), torch.zeros(SIZE, dtype=torch.int32)]])
    guards = [region(other, "output", call, GUARD) for call in range(CALLS)]
    other.copy_from(one)
    for call in range(CALLS):
        given, output = other.arguments(call)
        assert given.eq(call).all() and torch.equal(output, poisoned)
        assert torch.equal(one.arguments(call)[1], poisoned)
        assert torch.equal(region(other, "output", call, GUARD), guards[call])


def test_an_output_with_content_is_filled_each_time_on_both_sides() -> None:
    one, other = with_output(torch.float32, blank=False), with_output(torch.float32, blank=False)
    for number in (1.0, 2.0):
        for layout in (one, other):
            for call in range(CALLS):
                layout.fill(call, [[torch.zeros(SIZE), torch.full((SIZE,), number)]])
        assert all(layout.arguments(0)[1].eq(number).all() for layout in (one, other))
        assert not other.can_copy_from(one)


def test_each_calls_outputs_are_read_where_they_lie() -> None:
    returned = [
        torch.ones(3, 4).t(),  # Of strides of its own.
        torch.tensor(1, dtype=torch.int16),
        torch.ones(2, 0),
        torch.ones(2, 1).expand(2, 5),
        torch.ones(7, dtype=torch.complex64),
    ]
    slots = Slots(CALLS, [torch.ones(SIZE)], (), returned, "cpu")
    snapshot = slots.image[slots.inputs_end :].random_(0, 256)
    stride = slots.output_bytes // CALLS
    for call, outputs in enumerate(slots.read(snapshot)):
        for got, ref, like in zip(outputs, slots.outputs, returned, strict=True):
            want = view(snapshot, ref.at(ref.offset - slots.inputs_end + call * stride))
            assert (got.shape, got.stride(), got.dtype) == (like.shape, like.stride(), like.dtype)
            assert identical(got, want) and (not like.numel() or got.data_ptr() == want.data_ptr())


def test_calls_without_outputs_have_none_to_read() -> None:
    slots = Slots(CALLS, [torch.ones(SIZE)], (), [], "cpu")
    assert slots.read(slots.image[slots.inputs_end :]) == [[], [], []]
    assert slots.read_stacked(slots.image[slots.inputs_end :]) == []


def test_each_input_of_all_calls_is_one_view_of_an_arena() -> None:
    example = [{"x": torch.ones(3, 4).t()}, 7, torch.empty(5), (torch.ones(2, 1).expand(2, 3), torch.ones(0, 2))]
    slots = Slots(CALLS, example, (2,), [], "cpu")
    memory = torch.empty(slots.size + 64, dtype=torch.uint8).random_(0, 256)
    stacks = slots.stacked_inputs(memory)
    for call in range(CALLS):
        arguments = slots.arguments(call, memory)
        given = leaves([*arguments[:2], *arguments[3:]], torch.Tensor)
        assert len(given) == len(stacks) == 3
        for stack, want in zip(stacks, given, strict=True):
            assert (len(stack), stack[call].stride()) == (CALLS, want.stride())
            assert identical(stack[call], want) and (not want.numel() or stack[call].data_ptr() == want.data_ptr())


@pytest.mark.parametrize("noisy", [False, True])
def test_a_wipe_leaves_nothing_of_inputs_and_clears_outputs(noisy: bool) -> None:
    slots = called_with(torch.ones(SIZE), 3, torch.full((SIZE,), 2.0))
    slots.broadcast([torch.ones(SIZE), 3, torch.full((SIZE,), 2.0)])
    memory = slots.image.clone()
    memory[slots.inputs_end :] = 0
    noise = slots.noise() if noisy else None
    slots.clear(memory, noise)
    if noise is None:
        assert all(slots.arguments(call, memory)[index].isnan().all() for call in range(CALLS) for index in (0, 2))
    else:
        assert torch.equal(memory[: slots.inputs_end], noise) and noise.unique().tolist() == [0, 1]
    assert torch.equal(memory[slots.inputs_end :], slots.image[slots.inputs_end :])


@pytest.fixture(params=["in the image", "beside the image"])
def outputs_returned(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Slots:
    """Calls that return two outputs, one with gaps; both large enough, or not, to be left out of the image."""
    if request.param == "beside the image":
        monkeypatch.setattr(call_buffers, "LARGE_OUTPUTS", 1)
    outputs = [torch.ones(4, 6)[:, :3], torch.ones(SIZE)]
    slots = Slots(CALLS, [torch.ones(SIZE)], (), outputs, "cpu")
    slots.broadcast([torch.ones(SIZE)])
    assert (slots.image.numel() == slots.inputs_end) is (request.param == "beside the image")
    return slots


def test_an_arena_starts_with_inputs_poison_and_guards(outputs_returned: Slots) -> None:
    arena = HostArena(outputs_returned.size)
    arena.bytes.zero_()
    write_image(Device("cpu"), outputs_returned, arena)
    snapshot = arena.bytes[outputs_returned.inputs_end : outputs_returned.size]
    assert all(outputs_returned.arguments(call, arena.bytes)[0].eq(1).all() for call in range(CALLS))
    assert all(stack.isnan().all() for stack in outputs_returned.read_stacked(snapshot))
    assert outputs_returned.is_reset(snapshot) and not outputs_returned.overrun(snapshot)
    arena.bytes.zero_()
    outputs_returned.clear(arena.bytes)
    assert outputs_returned.is_reset(snapshot) and arena.bytes[: outputs_returned.inputs_end].eq(POISON).all()


def test_one_changed_byte_of_the_outputs_shows(outputs_returned: Slots) -> None:
    reset = torch.empty(outputs_returned.size, dtype=torch.uint8)
    outputs_returned.clear(reset)
    outputs, stride = reset[outputs_returned.inputs_end :], outputs_returned.output_bytes // CALLS
    gap, last = 3 * 4, outputs_returned.outputs[1].offset - outputs_returned.inputs_end + SIZE * 4 - 1
    for place, is_guard in ((0, False), (gap, False), (last + stride, False), (last + 1, True), (stride - 1, True)):
        changed = outputs.clone()
        changed[place] ^= 1
        assert not outputs_returned.is_reset(changed) and outputs_returned.overrun(changed) is is_guard


def test_what_lies_in_an_argument_is_read_in_every_call_and_never_past_it() -> None:
    slots = called_with(torch.ones(SIZE), torch.ones(SIZE))
    for call in range(CALLS):
        slots.fill(call, [[torch.ones(SIZE), torch.arange(SIZE) + 10.0 * call]])
    third = TensorRef("float32", (2,), (3,), 4)
    found = slots.view_at(1, third, slots.image)
    assert found is not None
    assert [each.tolist() for each in found] == [[1, 4], [11, 14], [21, 24]]
    assert slots.view_at(2, third, slots.image) is None
    assert slots.view_at(1, third.at(6), slots.image) is None
    assert slots.view_at(1, TensorRef("float32", (SIZE,), (1,), 4), slots.image) is None


FORMS: list[tuple[tuple[int, ...], tuple[int, ...], torch.dtype]] = [
    ((4, 3), (1, 4), torch.float32),
    ((6,), (1,), torch.uint16),
    ((), (), torch.bool),
    ((2, 0), (1, 1), torch.float64),
    ((2, 5), (1, 0), torch.float16),  # One element many times.
    ((7,), (1,), torch.complex64),
    ((4,), (1,), torch.float8_e5m2),
]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_sets_of_every_form_are_written_from_any_call_on(device: str) -> None:
    """Nested, and with a number between them; as many calls at once as are given."""

    def drawn(seed: int) -> list[Any]:
        numbers = torch.Generator().manual_seed(seed)
        first, *others = (
            torch.randint(0, 99, stored_shape(torch.empty_strided(shape, strides)), generator=numbers)
            .to(dtype)
            .to(device)
            .expand(shape)
            for shape, strides, dtype in FORMS
        )
        return [first, 2.5, {"others": tuple(others)}]

    forms = [torch.empty_strided(shape, strides, dtype=dtype, device=device) for shape, strides, dtype in FORMS]
    slots = Slots(CALLS, [forms[0], 2.5, {"others": tuple(forms[1:])}], (), [torch.ones(SIZE, device=device)], device)
    guards = slots.image[slots.inputs_end :].clone()
    slots.fill(0, [drawn(5)])
    slots.fill(1, [drawn(6), drawn(7)])
    for call in range(CALLS):
        given = slots.arguments(call)
        assert given[1] == 2.5
        got, want = (leaves(arguments, torch.Tensor) for arguments in (given, drawn(5 + call)))
        assert all(identical(*pair) for pair in zip(got, want, strict=True))
        assert [tensor.stride() for tensor in got] == [strides for _, strides, _ in FORMS]
    assert torch.equal(slots.image[slots.inputs_end :], guards)
