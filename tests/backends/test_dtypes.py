"""Wire dtype names and torch dtypes, and the poison and bit patterns of each."""

from __future__ import annotations

import pytest
import torch

from backends.dtypes import is_computed, torch_dtype, wire_name
from domain.dtype import CODES, ITEM_BYTES
from validation.compare.bitwise import bits, identical, pieces
from validation.inputs import poison_fill

NAMES = sorted(ITEM_BYTES)


@pytest.mark.parametrize("name", NAMES)
def test_names_and_dtypes_go_both_ways(name: str) -> None:
    assert wire_name(torch_dtype(name)) == name
    assert torch_dtype(name).itemsize == ITEM_BYTES[name]


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"float31.*bfloat16"):
        torch_dtype("float31")
    with pytest.raises(ValueError, match="no name in a contract"):
        wire_name(torch.float8_e4m3fnuz)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5)])
def test_poison_is_seen_until_it_is_written(name: str, shape: tuple[int, ...]) -> None:
    tensor = torch.zeros(shape, dtype=torch.uint8 if name in CODES else torch_dtype(name)).view(torch_dtype(name))
    assert poison_fill.unwritten_fraction(tensor) == 0.0
    poison_fill.fill(tensor)
    assert poison_fill.unwritten_fraction(tensor) == (1.0 if tensor.numel() else 0.0)
    if is_computed(tensor) or tensor.dtype.is_complex:
        assert tensor.to(torch.complex128).isnan().all()
    if tensor.numel() > 1:
        bits(tensor)[-1] = 1
        assert 0.0 < poison_fill.unwritten_fraction(tensor) < 1.0


def test_poison_leaves_the_gaps_of_a_strided_tensor() -> None:
    memory = torch.zeros(10)
    poison_fill.fill(memory[::2])
    assert memory[1::2].eq(0).all()
    assert memory[::2].isnan().all()


def test_arithmetic_nans_are_not_poison() -> None:
    assert poison_fill.unwritten_fraction(torch.tensor([0.0]) / 0) == 0.0
    assert poison_fill.unwritten_fraction(torch.tensor([float("nan")], dtype=torch.float16)) == 0.0


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_a_number_of_one_byte_is_no_trace_where_others_were_written(name: str) -> None:
    """Every byte is some answer there: that of e5m2 its largest number, which all that is too large becomes."""
    tensor = torch.ones(8, dtype=torch_dtype(name))
    poison_fill.fill(tensor[:3], finite=True)
    assert poison_fill.unwritten_fraction(tensor) == 0.0
    poison_fill.fill(tensor, finite=True)
    assert poison_fill.unwritten_fraction(tensor) == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_bits_share_memory(name: str) -> None:
    tensor = torch.zeros(4 * ITEM_BYTES[name], dtype=torch.uint8).view(torch_dtype(name))
    before = tensor.clone()
    bits(tensor).fill_(1)
    assert not identical(tensor, before)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 7, 64, 10_000])
@pytest.mark.parametrize("shape", [(), (1,), (9,), (4, 6), (1, 1, 13), (3, 1, 5, 4), (1, 30)])
def test_pieces_cover_every_element_once_in_order(shape: tuple[int, ...], limit: int) -> None:
    count = torch.Size(shape).numel()
    plain = torch.arange(count).reshape(shape)
    turned = plain.permute(tuple(reversed(range(plain.ndim)))).contiguous().permute(tuple(reversed(range(plain.ndim))))
    expected = 0
    for start, one, other in pieces(turned, plain, limit):
        assert one.ndim == 1
        assert len(one) <= limit
        assert one.tolist() == other.tolist() == list(range(start, start + len(one)))
        assert start == expected
        expected += len(one)
    assert expected == count


def test_identity_is_bitwise() -> None:
    nan = torch.tensor([float("nan"), 1.0])
    zero = torch.zeros(3)
    assert identical(nan, nan.clone())
    assert not identical(nan, torch.tensor([float("nan"), 1.0000001]))
    assert not identical(zero, -zero)
    assert not identical(zero, zero.double())
    turned = torch.arange(6).reshape(2, 3).t()
    assert identical(turned, turned.contiguous())
