"""The arguments of a dry run: what crosses from the reference's builder to the candidate's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from backends.dry_run.example import UNKNOWN, Example, may_compile
from domain.value import CodecError
from tests.backends.loading import kernel, loaded, tensor

SOURCE = """
class Model(nn.Module):
    def __init__(self, dtype, size):
        super().__init__()
    def forward(self, x, n):
        return x
def get_init_inputs():
    return [torch.float16, 3]
"""
IO: dict[str, Any] = {
    "args": [
        tensor("x", 4, 2),
        {"name": "n", "type": "int", "value": 8},
        {"name": "BLOCK", "type": "int", "value": 16, "is_meta": True},
        tensor("y", 4, 2, role="output"),
    ]
}


def test_constructor_arguments_and_inputs_cross_without_content(tmp_path: Path) -> None:
    given = kernel(SOURCE)
    wire = Example.wire(given, loaded(given, tmp_path), [torch.ones(4, 2).t(), 8])
    crossed = Example.from_wire(wire)
    assert crossed.borrowed.init == [torch.float16, 3]
    described, number = crossed.inputs or []
    assert (described.dtype, described.shape, described.strides, number) == ("float32", (2, 4), (1, 2), 8)


def test_a_contracts_outputs_and_launch_constants_do_not_cross(tmp_path: Path) -> None:
    given = kernel(SOURCE, io=IO)
    wire = Example.wire(given, loaded(kernel(SOURCE), tmp_path), [torch.ones(4, 2), 8, 16, torch.ones(4, 2)])
    assert [getattr(value, "shape", value) for value in Example.from_wire(wire).inputs or []] == [(4, 2), 8]


def test_what_does_not_cross_is_unknown(tmp_path: Path) -> None:
    given = kernel(SOURCE)
    assert Example.wire(given, loaded(given, tmp_path), [object()]) is None
    assert Example.from_wire(None) == Example() and Example.from_wire(UNKNOWN).unknown
    with pytest.raises(CodecError):
        Example.from_wire([1, 2])


@pytest.mark.parametrize(
    ("source", "expected"), [("import triton", True), ("cpp_extension.load()", True), ("x @ x", False)]
)
def test_which_sources_may_compile(source: str, expected: bool) -> None:
    assert may_compile(kernel(source)) is expected
