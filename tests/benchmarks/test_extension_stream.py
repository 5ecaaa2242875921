"""The stream's sources are different extensions, each still a Python file; without the service one is judged whole."""

from __future__ import annotations

import ast

import pytest

from benchmarks.extension_stream import different
from benchmarks.stock_extension import judged

PLAIN = "import torch\nfrom torch import nn\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return {}\n"
INPUTS = "def get_inputs():\n    return [torch.ones(4)]\n"


def test_no_two_extensions_of_a_stream_have_the_same_code() -> None:
    sources = different(60)
    code = [
        tuple(node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
        for source in sources
    ]
    assert len(set(code)) == 60
    # A comment of C++, at the beginning of every text of it.
    assert all("torch.utils.cpp_extension" in source and '= """// ' in source for source in sources)


def test_what_needs_the_device_is_a_part_of_a_job() -> None:
    found = judged(PLAIN.format("x + 1") + INPUTS)
    assert 0 < found.device_s < found.seconds


def test_one_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="no_such_name"):
        judged(PLAIN.format("no_such_name") + INPUTS)
