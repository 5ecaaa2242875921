"""Which parameters the values of a call reach: by position, and by keyword where there is no other way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from domain.fault import KernelFault
from domain.kernel import Kernel
from tests.backends.loading import kernel, loaded, tensor

PAIR = [torch.full((2,), 3.0), torch.full((2,), 5.0)]
X, MASK = "torch.full((2,), 3.0)", "torch.full((2,), 5.0)"


def outputs(source: str, folder: Path, args: list[Any] | None = None) -> Any:
    """What the kernel returns for its own inputs, or those."""
    executable = loaded(kernel(source), folder)
    given = args if args is not None else executable.own_inputs(1)
    assert given is not None
    return executable.call(given)


@pytest.mark.parametrize("made", [f"[{X}]", f"({X},)", X, f"{{'x': {X}}}"])
@pytest.mark.parametrize(
    "signature", ["(x, *, eps=1.0)", "(x, *, eps=1.0, **more)", "(x, *rest, eps=1.0)", "(*, x, eps=1.0)"]
)
def test_a_keyword_only_parameter_with_a_default_keeps_it(signature: str, made: str, tmp_path: Path) -> None:
    source = f"def kernel_fn{signature}: return x + eps\ndef get_inputs(): return {made}"
    assert outputs(source, tmp_path).tolist() == [4.0, 4.0]


@pytest.mark.parametrize("made", [f"[{X}, {MASK}]", f"{{'mask': {MASK}, 'x': {X}}}"], ids=["in order", "by name"])
@pytest.mark.parametrize(
    "signature",
    ["(self, x, *, mask)", "(self, x, *, scale=1.0, mask)", "(self, x, scale=1.0, *, mask)", "(self, *, x, mask)"],
)
def test_inputs_reach_keyword_only_parameters_without_a_default(signature: str, made: str, tmp_path: Path) -> None:
    source = f"""
    class Model(nn.Module):
        def forward{signature}:
            return x - mask * {"scale" if "scale" in signature else "1.0"}
    def get_inputs(): return {made}
    """
    assert outputs(source, tmp_path).tolist() == [-2.0, -2.0]


def test_a_reference_s_inputs_reach_the_keyword_only_parameters_of_a_kernel(tmp_path: Path) -> None:
    source = "def kernel_fn(x, *, block=2, mask): return (x - mask) * block"
    assert outputs(source, tmp_path, PAIR).tolist() == [-4.0, -4.0]
    assert outputs(source, tmp_path, [*PAIR, 7]).tolist() == [-4.0, -4.0]  # No number of another kernel is the block.


REFERENCES = {
    "by position": kernel("def kernel_fn(x, mask): return x - mask"),
    "by keyword": kernel("def kernel_fn(x, *, eps=1.0, mask): return x - mask"),
    "with a default": kernel("def kernel_fn(x, mask, eps=1.0): return x - mask"),
    "with a default before": kernel("def kernel_fn(x, eps=1.0, *, mask): return x - mask"),
    "by a contract": kernel(
        "def kernel_fn(x, mask): return x - mask",
        io={"args": [tensor("x", 2), tensor("mask", 2), tensor("out", 2, role="output")]},
    ),
}


@pytest.mark.parametrize("reference", REFERENCES.values(), ids=REFERENCES)
@pytest.mark.parametrize("own", ["", "\ndef get_inputs(): return []"])
@pytest.mark.parametrize("parameters", ["x, *, mask", "*, mask, x", "mask, *, x", "*, mask, eps=1.0, x"])
def test_a_reference_s_inputs_reach_keyword_only_parameters_by_name(
    reference: Kernel, parameters: str, own: str, tmp_path: Path
) -> None:
    given = kernel(f"def kernel_fn({parameters}): return x - mask{own}")
    executable = loaded(given, tmp_path, like=loaded(reference, tmp_path))
    assert executable.call(PAIR).tolist() == [-2.0, -2.0]


def test_inputs_by_name_for_a_keyword_only_parameter_with_a_default_are_told(tmp_path: Path) -> None:
    source = "def kernel_fn(x, *, dim=0): return x.sum(dim)\ndef get_inputs(): return {'x': torch.ones(2), 'dim': 0}"
    with pytest.raises(KernelFault, match=r"kernel_fn takes dim by keyword alone: leave out the `\*` before it"):
        loaded(kernel(source), tmp_path).own_inputs(1)


def test_a_contract_s_arguments_reach_keyword_only_parameters_by_name(tmp_path: Path) -> None:
    numbers = [{"name": name, "type": "float", "value": value} for name, value in (("scale", 2.0), ("eps", 1.0))]
    args = [tensor("x", 2), *numbers, tensor("out", 2, role="output")]
    out = torch.empty(2)
    for source, expected in (
        ("def kernel_fn(x, *, dim=0, eps=0.5, scale=1.0): return x * scale + eps + dim", 7.0),
        ("def kernel_fn(x, *, block=64): return x + block", 67.0),
    ):
        executable = loaded(kernel(source, io={"args": args}), tmp_path)
        assert executable.call([PAIR[0], 2.0, 1.0, out]).tolist() == [expected] * 2
    writes = "def kernel_fn(x, *, out, eps, scale): out.copy_(x * scale + eps)"
    assert loaded(kernel(writes, io={"args": args}), tmp_path).call([PAIR[0], 2.0, 1.0, out]) is None
    assert out.tolist() == [7.0, 7.0]


def test_inputs_are_guessed_for_keyword_only_parameters_that_need_them(tmp_path: Path) -> None:
    executable = loaded(
        kernel("def kernel_fn(x, scale=2.0, *, mask, eps=0.0): return x * scale + mask + eps"), tmp_path
    )
    inferred = executable.inferred_inputs(1)
    assert inferred is not None and len(inferred[0]) == 2 and "x, mask: float32" in inferred[1]
    x, mask = inferred[0]
    assert torch.equal(executable.call([x, mask]), x * 2.0 + mask)


def test_values_that_no_parameter_takes_are_python_s_error(tmp_path: Path) -> None:
    with pytest.raises(KernelFault, match="takes 1 positional argument but 3 were given"):
        outputs("def kernel_fn(x, *, eps=1.0): return x", tmp_path, [1, 2, 3])
