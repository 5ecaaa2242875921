"""What a call surely wrote, of outputs larger than a float32 can count."""

import torch

from profiling.written_bytes import returned_bytes


def test_an_output_larger_than_float32_counts_is_sampled_inside_itself():
    given = torch.zeros(1, dtype=torch.int8)
    count = (1 << 24) + 3
    one = torch.arange(count, dtype=torch.int32).to(torch.int8)
    assert returned_bytes([one], [one + 1], [given]) == count
