"""Tensors of types that PyTorch copies and compares in few ways."""

from __future__ import annotations

import math

import pytest
import torch

from domain.dtype import CODES, read_code
from sandbox.protocol.arena import comparable, copy_all, write


def of_bytes(octets: list[int], name: str) -> torch.Tensor:
    return torch.tensor(octets, dtype=torch.uint8).view(getattr(torch, name))


def test_scales_are_compared_by_their_bits() -> None:
    drawn = of_bytes([0, 1, 127, 254, 255], "float8_e8m0fnu")
    assert comparable(drawn).tolist() == [0, 1, 127, 254, 255]
    assert comparable(drawn).data_ptr() == drawn.data_ptr()
    assert [read_code(octet, "float8_e8m0fnu") for octet in (0, 1, 127, 254)] == drawn[:4].double().tolist()
    assert math.isnan(float(drawn[4])) and repr(read_code(255, "float8_e8m0fnu")) == "nan"


def test_packed_numbers_are_equal_where_both_values_are() -> None:
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    octets = torch.arange(256)
    assert all(
        read_code(octet, "float4_e2m1fn_x2") == values[[octet & 15, octet >> 4]].tolist() for octet in range(256)
    )
    low, high = values[octets & 15], values[octets >> 4]
    equal = (low[:, None] == low) & (high[:, None] == high)
    codes = comparable(of_bytes(list(range(256)), "float4_e2m1fn_x2"))
    assert torch.equal(codes[:, None] == codes, equal)


@pytest.mark.parametrize("name", sorted(CODES))
def test_codes_are_copied_whatever_their_layout(name: str) -> None:
    drawn = of_bytes(list(range(40, 52)), name).view(3, 4)
    turned = torch.empty(4, 3, dtype=drawn.dtype).t()
    write(turned, drawn)
    assert torch.equal(comparable(turned), comparable(drawn))
    repeated = torch.empty(4, dtype=drawn.dtype).expand(3, 4)
    write(repeated, drawn[:1].expand(3, 4))
    assert torch.equal(comparable(repeated), comparable(drawn[:1]).expand(3, 4))
    copies = [torch.empty_like(drawn), torch.empty(3, 4)]
    copy_all(copies, [drawn, torch.ones(3, 4)])
    assert torch.equal(comparable(copies[0]), comparable(drawn)) and copies[1].eq(1).all()
