"""What a pool child's process is set to when its workbench opens."""

from __future__ import annotations

import torch

from tests.bench import own_workbench


def test_on_the_host_the_referee_computes_in_one_thread() -> None:
    """Threads that wait for each other wait for whatever else has their cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with own_workbench() as bench:
            assert bench.device.is_cuda or torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
