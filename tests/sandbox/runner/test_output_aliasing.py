"""Whether a kernel's first answer was another than its last, of what can be told of it."""

from __future__ import annotations

import pytest
import torch

from sandbox.runner.output_aliasing import MAX_COPIED, SAMPLE_SIZE, OutputAliasing

ARENA = torch.zeros(64, dtype=torch.uint8)


def differs(first: torch.Tensor, last: torch.Tensor) -> bool | None:
    places = OutputAliasing(ARENA)
    for answer in (first, last):
        places.note([answer])
    told = places.to_wire([last])["first_call_differs"]
    assert told is None or isinstance(told, bool)
    return told


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7))


SIZES = {"few": (60,), "some": (SAMPLE_SIZE,), "all that is copied": (MAX_COPIED,), "many": (1024, 1024), "one": (1,)}


@pytest.mark.parametrize("shape", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_same_answer_is_no_other_and_another_is(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    answer = drawn(*shape).to(dtype)
    assert differs(answer, answer.clone()) is False
    assert differs(answer + 3, answer) is True


@pytest.mark.parametrize("columns", [256, 1000, 1024, 4096, 1 << 16])
def test_a_part_of_every_row_shows_however_long_rows_are(columns: int) -> None:
    answer = drawn((1 << 21) // columns, columns)
    assert answer.numel() > MAX_COPIED
    for half in (slice(columns // 2, None), slice(None, columns // 2)):
        other = answer.clone()
        other[:, half] += 5
        assert differs(other, answer) is True


@pytest.mark.parametrize("rows", [55, 89, 144, 233, 288, 377, 610, 987, 1597, 128, 1000])
def test_a_band_of_columns_shows_however_many_rows_there_are(rows: int) -> None:
    answer = drawn(rows, 1024)
    for begin in range(0, 769, 64):
        other = answer.clone()
        other[:, begin : begin + 256] += 5
        assert differs(other, answer) is True, begin
    for columns, shown in ((40, False), (123, True)):
        other = answer.clone()
        other[:, -columns:] += 5
        assert differs(other, answer) is shown


@pytest.mark.parametrize(("rows", "columns"), [(8192, 66), (16384, 33), (32768, 65), (65536, 33), (4096, 132)])
def test_a_band_shows_in_as_many_rows_as_are_a_power_of_two(rows: int, columns: int) -> None:
    answer = drawn(rows, columns)
    for half in (slice(columns // 2, None), slice(None, columns // 2), slice(1, columns // 2), slice(2, -2, 2)):
        other = answer.clone()
        other[:, half] += 5
        assert differs(other, answer) is True, half


def test_little_of_it_may_differ() -> None:
    answer = drawn(512, 512)
    other = answer.clone()
    other[: 512 // 20] += 5
    assert differs(other, answer) is False
    assert differs(answer * 1.01, answer) is False


def test_a_transposed_answer_is_looked_at_where_that_is_no_copy_of_much() -> None:
    for rows in (100, 300):
        answer = drawn(rows, 200)
        assert differs(answer.t() + 3, answer.t()) is True
    large = drawn(1000, 200)
    assert differs((large + 3).t(), large.t()) is False


def test_nothing_is_told_of_what_has_been_written_over_or_is_another_form() -> None:
    answer = drawn(100)
    assert differs(answer, answer) is None
    assert differs(drawn(50), answer) is None
    assert differs(torch.arange(9), torch.arange(9) + 1) is False
