"""What a call surely wrote, of outputs larger than a float32 can count."""

import torch

from profiling.roofline.written_bytes import returned_bytes


def test_an_output_larger_than_float32_counts_is_sampled_inside_itself():
    given = torch.zeros(1, dtype=torch.int8)
    count = (1 << 24) + 3
    one = torch.arange(count, dtype=torch.int32).to(torch.int8)
    assert returned_bytes([one], [one + 1], [given]) == count


def test_an_input_whose_elements_are_not_side_by_side_is_searched_too():
    given = torch.arange(64, dtype=torch.float32).as_strided((4, 4), (16, 2))
    one = torch.rand(8)
    assert returned_bytes([one], [one + 1], [given]) == 32
    assert returned_bytes([given.contiguous()], [given + 100], [given]) == 0
