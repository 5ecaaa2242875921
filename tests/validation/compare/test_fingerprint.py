"""Fingerprints of tensors: equal bits have equal ones, and one changed element shows."""

import pytest
import torch

from validation.compare import bitwise
from validation.compare.bitwise import fingerprint


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.bool, torch.complex128])
def test_one_changed_element_shows_wherever_it_is(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bitwise, "COUNTED", 7)  # Several blocks, the last of them shorter.
    tensor = torch.randint(0, 2, (5, 9)).to(dtype)
    assert fingerprint(tensor) == fingerprint(tensor.clone())
    for place in range(tensor.numel()):
        other = tensor.clone()
        other.view(-1)[place] = 1 - other.view(-1)[place].to(torch.float64).to(torch.int64)
        assert fingerprint(other) != fingerprint(tensor)


def test_order_and_layout_count_as_the_elements_do() -> None:
    tensor = torch.randn(6, 4)
    assert fingerprint(tensor.flip(0)) != fingerprint(tensor)
    assert fingerprint(tensor.t().contiguous().t()) == fingerprint(tensor)
    assert fingerprint(torch.empty(0)) == 0
