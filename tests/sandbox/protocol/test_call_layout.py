"""The calls of a window as a runner makes them of what it is told."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from domain.value import leaves
from profiling.window.call_buffers import Slots
from sandbox.protocol.call_layout import decode_calls

CALLS = 4
OUTPUTS = [torch.ones(3, 4).t(), torch.tensor(1, dtype=torch.int16), torch.ones(2, 0)]


def layout() -> Slots:
    example: list[Any] = [torch.ones(10), 3, {"b": torch.ones(2, 1).expand(2, 5), "c": torch.ones(0)}]
    return Slots(CALLS, example, (), OUTPUTS, "cpu")


def test_each_calls_tensors_lie_where_the_referee_has_them() -> None:
    slots = layout()
    calls = decode_calls(slots.wire(), slots.image)
    read = slots.read(slots.image[slots.inputs_end :])
    assert len(calls) == CALLS
    for number, (args, answers) in enumerate(calls):
        own = slots.arguments(number)
        assert args[1] == own[1] == 3 and list(args[2]) == ["b", "c"]
        for got, want in ((leaves(args, torch.Tensor), leaves(own, torch.Tensor)), (answers, read[number])):
            assert len(got) == len(want)
            for one, other in zip(got, want, strict=True):
                assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
                assert one.data_ptr() == other.data_ptr() or not one.numel()


def test_to_a_kernels_eye_an_argument_is_alone_in_its_storage() -> None:
    slots = layout()
    for args, _ in decode_calls(slots.wire(), slots.image):
        tensor = args[0]
        assert tensor._base is None and tensor.storage_offset() == 0 and tensor.is_leaf
        assert tensor.untyped_storage().nbytes() == tensor.nbytes


def test_the_null_kernel_is_told_to_launch_once_and_what_to_imitate() -> None:
    slots = layout()
    calls = decode_calls(slots.null_wire(), slots.image)
    assert [args[0] for args, _ in calls] == [True] + [False] * (CALLS - 1)
    for (args, answers), outputs in zip(calls, slots.read(slots.image[slots.inputs_end :]), strict=True):
        for imitated, slot, output in zip(args[1:], answers, outputs, strict=True):
            assert imitated.data_ptr() == slot.data_ptr() == output.data_ptr() or not output.numel()


@pytest.mark.parametrize("missing", [1, 513])
def test_what_does_not_fit_into_the_memory_is_refused(missing: int) -> None:
    slots = Slots(CALLS, [torch.ones(10)], (), [], "cpu")
    room = slots.arguments(CALLS - 1)[0].storage_offset() * 4 + 40
    assert len(decode_calls(slots.wire(), slots.image[:room])) == CALLS
    with pytest.raises(ValueError, match="does not fit"):
        decode_calls(slots.wire(), slots.image[: room - missing])
