"""More than 2^31 elements: what lies beyond is found, and memory beside the tensors stays bounded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from domain.contract import TensorInit, TensorSpec
from profiling.roofline.written_bytes import returned_bytes
from profiling.window.call_buffers import Slots
from sandbox.protocol import arena as arenas
from sandbox.protocol.arena import describe, view
from sandbox.protocol.outputs import deliver
from validation.compare.bitwise import count_true, identical
from validation.compare.comparison import compare
from validation.compare.mismatch_map import mismatch_map
from validation.compare.rounding_boundary import few_are_wrong
from validation.compare.tolerance import requested
from validation.evidence.weak_reference import weak_reference
from validation.inputs import poison_fill
from validation.inputs.tensor_spec import make_tensor

COUNT, BEYOND = 2**31 + 8, 2**31 + 3
GIB = 1 << 30
BESIDE = 1 * GIB
"""Maximum memory beside both outputs."""
TOLERANCE = requested(None, None)
WAYS = [
    pytest.param("cpu", marks=pytest.mark.slow),  # Three minutes of a core in all, and up to 6 GiB.
    pytest.param("cuda", marks=pytest.mark.gpu),
]
EVERY = pytest.mark.parametrize("device", WAYS)


def _status(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None
    return int(found[1]) << 10


@contextmanager
def bounded(device: str, limit: int = BESIDE) -> Iterator[None]:
    """A block that may take at most `limit` bytes beside what is there at its start."""
    if device == "cpu":
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM counts from here on.
        before = _status("VmRSS")
        yield
        taken = _status("VmHWM") - before
    else:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield
        taken = torch.cuda.max_memory_allocated() - before
    assert taken <= limit, f"{taken / GIB:.2f} GiB"


def filled(value: int, device: str, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    """COUNT elements that take memory."""
    return torch.full((COUNT,), value, dtype=dtype, device=device)


@EVERY
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool])
def test_one_wrong_element_beyond_is_found_named_and_drawn(device: str, dtype: torch.dtype) -> None:
    expected, actual = filled(0, device, dtype), filled(0, device, dtype)
    actual[BEYOND] = 1
    with bounded(device):
        assert not identical(expected, actual)
        found = compare([expected], [actual], TOLERANCE)
    assert (found.mismatch_count, found.element_count, found.passed) == (1, COUNT, False)
    assert found.first_mismatch is not None and found.first_mismatch["index"] == [BEYOND]
    with bounded(device):
        drawn = mismatch_map([expected], [actual], TOLERANCE)
        assert few_are_wrong([expected], [actual], TOLERANCE)
    assert drawn is not None and drawn["folded"] and drawn["output_mismatch_count"] == 1
    row, column = divmod(BEYOND, drawn["columns"])
    assert drawn["counts"][row // drawn["block"][0]][column // drawn["block"][1]] == 1
    actual[BEYOND] = 0
    with bounded(device):
        assert compare([expected], [actual], TOLERANCE).passed
        assert mismatch_map([expected], [actual], TOLERANCE) is None


@pytest.mark.gpu
def test_all_elements_are_wrong_and_counted() -> None:
    expected, actual = filled(0, "cuda"), filled(1, "cuda")
    with bounded("cuda"):
        found, drawn = compare([expected], [actual], TOLERANCE), mismatch_map([expected], [actual], TOLERANCE)
        assert not few_are_wrong([expected], [actual], TOLERANCE)
    assert (found.mismatch_count, found.sum_abs_diff) == (COUNT, COUNT)
    assert found.first_mismatch is not None and found.first_mismatch["index"] == [0]
    assert drawn is not None and drawn["mismatch_count"] == sum(map(sum, drawn["counts"])) == COUNT
    with bounded("cuda"):
        assert returned_bytes([expected], [actual], []) == COUNT
        assert [flag.data["trivial_output"] for flag in weak_reference([expected], [], TOLERANCE)] == ["all zeros"]


@EVERY
def test_poison_beyond_is_seen(device: str) -> None:
    output = filled(0, device)
    with bounded(device):
        assert poison_fill.unwritten_fraction(output) == 0.0
        poison_fill.fill(output[BEYOND:])
        assert poison_fill.unwritten_fraction(output) == (COUNT - BEYOND) / COUNT
        poison_fill.fill(output)
        assert poison_fill.unwritten_fraction(output) == 1.0


@EVERY
@pytest.mark.parametrize(
    ("name", "init"),
    [
        ("int8", TensorInit("randint", low=-128, high=128)),
        ("bool", TensorInit("randn")),
        ("float8_e4m3fn", TensorInit("randn")),
    ],
)
def test_a_contract_draws_beyond(device: str, name: str, init: TensorInit) -> None:
    with bounded(device, 2 * COUNT + BESIDE // 2):
        drawn = make_tensor(TensorSpec((COUNT,), name, init=init), device=device, seed=3, position=0, fresh=1)
        tail = drawn[2**31 - (1 << 20) :].float()
    assert drawn.shape == (COUNT,)
    assert float(tail.std()) > {"int8": 50, "bool": 0.4, "float8_e4m3fn": 0.5}[name]
    assert len(tail[-8:].unique()) > 1


@EVERY
def test_arenas_views_and_copies_reach_beyond(device: str) -> None:
    source = filled(3, device)
    source[BEYOND] = 5
    arena = arenas.create(COUNT, device)
    ref = describe(source)
    with bounded(device, COUNT + BESIDE // 4 if device == "cpu" else BESIDE // 4):
        deliver([[source]], [[view(arena.bytes, ref)]])
    argument = arenas.argument(arena.bytes, ref)
    assert (int(argument[BEYOND]), int(argument[-1]), argument.shape) == (5, 3, (COUNT,))
    del argument
    arena.close()


@EVERY
def test_a_guard_beyond_is_watched(device: str) -> None:
    output = torch.empty(COUNT, dtype=torch.uint8, device="meta")
    slots = Slots(1, [], (), [output], device)
    snapshot = torch.empty(slots.size, dtype=torch.uint8, device=device)
    slots.poison_outputs(snapshot)  # The image has no outputs so large.
    assert not slots.overrun(snapshot)
    snapshot[COUNT] ^= 1
    assert slots.overrun(snapshot)
    assert slots.read(snapshot)[0][0].shape == (COUNT,)


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_a_mask_is_counted(size: int) -> None:
    mask = torch.rand(size) < 0.5
    assert count_true(mask) == int(mask.sum())
    assert count_true(mask.expand(3, size)) == 3 * count_true(mask)
