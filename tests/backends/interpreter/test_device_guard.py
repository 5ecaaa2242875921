"""Where PyTorch sees a GPU, a call without an argument still means that GPU."""

from __future__ import annotations

import pytest
import torch

from backends.interpreter import device_guard


@pytest.mark.gpu
def test_a_gpu_is_still_described() -> None:
    device_guard.install()
    assert torch.cuda.get_device_properties().name == torch.cuda.get_device_name(0)
    with torch.cuda.device(None):
        assert torch.cuda.get_device_capability()[0] > 0
