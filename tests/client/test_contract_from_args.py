"""Live arguments that no contract can describe: refused by name, before anything is sent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from kernel_eval_client import contract_from
from tests.client.test_contracts import accepted


@pytest.mark.parametrize(
    ("value", "inline", "told"),
    [
        (torch.eye(3).to_sparse(), True, "'x' is of the layout sparse_coo; .* to_dense"),
        (torch.empty(3, device="meta"), None, r"'x' \(Tensor on meta\) cannot be read: .* inline=False"),
        (torch.empty(3, device="meta", dtype=torch.int32), True, "'x' .*cannot be read"),
        (torch.arange(8).as_strided((4, 3), (1, 1)), True, "'x' is a view whose elements share memory .* a contiguous"),
        (np.lib.stride_tricks.sliding_window_view(np.arange(8), 3), None, "'x' is a view whose elements share"),
        (math.inf, None, "'x' is inf; a contract has finite"),
        (np.float32("nan"), None, "'x' is nan; a contract has finite"),
        (1 << 64, None, "'x' is 18446744073709551616, which does not fit 64 bits"),
    ],
)
def test_what_a_contract_cannot_describe_says_so(value: Any, inline: bool | None, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        contract_from({"x": value}, inline=inline)


def test_a_tensor_without_values_can_be_drawn() -> None:
    empty = torch.empty(3, device="meta")
    io = contract_from({"x": empty, "out": empty}, outputs=["out"], inline=False)
    assert [arg.tensor_spec.shape for arg in accepted(io).args if arg.tensor_spec] == [(3,), (3,)]
