"""Inputs that a source does not give: guessed, tried, told."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch

from api.schemas.contract import IOContractSchema
from backends.source.input_inference import GIVE_INPUTS
from domain.fault import KernelFault
from domain.result import Status
from tests.backends.loading import kernel, loaded


def model(init: str, forward: str) -> str:
    return (
        "class Model(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        f"        {init}\n"
        f"    def forward{forward}\n"
    )


@pytest.mark.parametrize(
    ("source", "guess"),
    [
        (model("pass", "(self, x): return torch.relu(x)"), "x: float32 [1024, 1024]"),
        (model("pass", "(self, x): return torch.matmul(x, x.T)"), "x: float32 [1024, 1024]"),
        (model("self.a = nn.MultiheadAttention(512, 8)", "(self, x): return self.a(x, x, x)[0]"), "[8, 128, 512]"),
        (model("self.l = nn.Linear(17, 3)", "(self, x): return self.l(x)"), "[8, 128, 17]"),
        (model("self.c = nn.Conv2d(5, 3, 3)", "(self, x): return self.c(x)"), "[8, 5, 64, 64]"),
        (model("self.n = nn.BatchNorm1d(12)", "(self, x): return self.n(x)"), "[1024, 12]"),
        (model("self.n = nn.LayerNorm(12)", "(self, x): return self.n(x)"), "[8, 128, 12]"),
        (model("self.r = nn.LSTM(10, 20)", "(self, x): return self.r(x)[0]"), "[8, 128, 10]"),
        (model("self.t = nn.TransformerEncoderLayer(32, 4)", "(self, x): return self.t(x)"), "[8, 128, 32]"),
        (model("self.p = nn.MaxPool2d(2)", "(self, x): return self.p(x)"), "[16, 128, 128]"),
        (model("self.l = nn.LazyLinear(8)", "(self, x): return self.l(x)"), "[1024, 1024]"),
        (model("self.l = nn.Linear(8, 8).double()", "(self, x): return self.l(x)"), "x: float64 [8, 128, 8]"),
        ("def kernel_fn(a, b): return a @ b", "a, b: float32 [1024, 1024]"),
        ("def kernel_fn(q, k): return torch.bmm(q, k)", "[16, 128, 128]"),
        ("def kernel_fn(x, a=2.0): return x * a", "x: float32"),
        ("def kernel_fn(*xs): return xs[0]", "xs: float32"),
        ("def kernel_fn(): return torch.ones(3)", "no arguments"),
    ],
)
def test_inferred(source: str, guess: str, tmp_path: Path) -> None:
    executable = loaded(kernel(source), tmp_path)
    inferred = executable.inferred_inputs(1)
    assert inferred is not None
    args, note = inferred
    assert note.startswith("inputs were inferred: ")
    assert guess in note
    executable.call(args)


def test_the_seed_decides(tmp_path: Path) -> None:
    executable = loaded(kernel("def kernel_fn(x): return x"), tmp_path)
    first, again, other = (executable.inferred_inputs(seed) for seed in (1, 1, 2))
    assert first is not None and again is not None and other is not None
    assert torch.equal(first[0][0], again[0][0])
    assert not torch.equal(first[0][0], other[0][0])


def test_trying_leaves_the_buffers_alone(tmp_path: Path) -> None:
    source = model("self.n = nn.BatchNorm1d(12)", "(self, x): return self.n(x)")
    executable = loaded(kernel(source), tmp_path)
    executable.inferred_inputs(1)
    assert executable.state()["n.running_mean"].tolist() == [0.0] * 12
    assert executable.state()["n.num_batches_tracked"].item() == 0


def test_nothing_fits(tmp_path: Path) -> None:
    executable = loaded(kernel("def kernel_fn(x): return torch.matmul(x, torch.ones(5, 5))"), tmp_path)
    with pytest.raises(KernelFault) as caught:
        executable.inferred_inputs(1)
    assert caught.value.status is Status.RUNTIME_ERROR
    assert "determine inputs" in caught.value.message
    assert "mat1 and mat2 shapes cannot be multiplied" in caught.value.message
    assert "def get_inputs(): return" in caught.value.message and '`{"args": [{' in caught.value.message


def test_an_example_of_a_contract_in_the_message_is_one() -> None:
    example = GIVE_INPUTS[GIVE_INPUTS.index("{") : GIVE_INPUTS.rindex("}") + 1]
    assert IOContractSchema().load(json.loads(example))


@pytest.mark.parametrize(
    "source",
    [
        model("self.e = nn.Embedding(33, 4)", "(self, x): return self.e(x)"),
        "def kernel_fn(x, index): return torch.gather(x, 0, index)",
        "def kernel_fn(logits, labels): return F.nll_loss(logits, labels)",
        "def kernel_fn(x, n: int): return x.sum(n)",
    ],
)
def test_what_no_float_tensor_of_one_shape_fits_asks_for_inputs(source: str, tmp_path: Path) -> None:
    executable = loaded(kernel(source), tmp_path)
    with pytest.raises(KernelFault) as caught:
        executable.inferred_inputs(1)
    assert caught.value.status is Status.RUNTIME_ERROR
    assert "define get_inputs(), such as" in caught.value.message and "or send `io`" in caught.value.message


MISSPELT_TRITON = """
import triton
import triton.language as tl

@triton.jit
def twice(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(ot + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

def kernel_fn(x):
    out = torch.empty_like(x)
    twice[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out
"""


@pytest.mark.parametrize(
    ("source", "error", "line"),
    [
        (
            "def kernel_fn(x):\n    return custom_matmul(x, x.T)",
            "NameError: name 'custom_matmul' is",
            "custom_matmul(x",
        ),
        # Some guesses never come as far as the bug.
        ("def kernel_fn(x, y):\n    z = x @ y.T @ y\n    return custom(z)", "NameError: name 'custom'", "custom(z)"),
        (
            "def kernel_fn(x):\n    import no_such_module",
            "ModuleNotFoundError: No module named",
            "import no_such_module",
        ),
        (model("pass", "(self, x): return self.weight * x"), "AttributeError: 'Model' object has no", "self.weight"),
        (model("pass", "(self, x): return torch.reluu(x)"), "AttributeError: module 'torch' has no", "torch.reluu"),
        (MISSPELT_TRITON, "name 'ot' is not defined", "tl.store(ot + at"),
        # Whatever the inputs are, it says the same.
        ("def kernel_fn(x):\n    return x * int(input())", "EOFError", "int(input())"),
        ("def kernel_fn(x):\n    assert x.dim() == 7", "AssertionError", "assert x.dim() == 7"),
        ("def kernel_fn(x):\n    raise SystemExit(3)", "SystemExit: 3", "raise SystemExit(3)"),
    ],
)
def test_a_bug_of_the_source_is_not_blamed_on_the_inputs(
    source: str, error: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # As in the runners of a worker without a GPU.
    monkeypatch.setattr("sys.stdin", io.StringIO())
    executable = loaded(kernel(source), tmp_path)
    with pytest.raises(KernelFault) as caught:
        executable.inferred_inputs(1)
    assert caught.value.status is Status.RUNTIME_ERROR
    assert error in caught.value.message and "determine inputs" not in caught.value.message
    assert line in caught.value.log
    of_no_inputs = error.startswith(("NameError", "ModuleNotFoundError", "SystemExit"))
    assert ("If the inputs are at fault" in caught.value.message) is not of_no_inputs


@pytest.mark.parametrize(
    "source",
    [
        "def kernel_fn(x): return x.items()",
        "def kernel_fn(x):\n    if x.dim() == 7:\n        y = x\n    return y",
    ],
)
def test_an_error_that_a_guess_may_have_caused_asks_for_inputs(source: str, tmp_path: Path) -> None:
    executable = loaded(kernel(source), tmp_path)
    with pytest.raises(KernelFault, match=r"define get_inputs\(\).*or send `io`"):
        executable.inferred_inputs(1)


def test_no_memory_for_any_guess(tmp_path: Path) -> None:
    executable = loaded(kernel("def kernel_fn(x): return torch.empty(1 << 55, dtype=x.dtype)"), tmp_path)
    with pytest.raises(KernelFault) as caught:
        executable.inferred_inputs(1)
    assert caught.value.status is Status.OUT_OF_MEMORY


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_ends_the_trying(tmp_path: Path) -> None:
    executable = loaded(kernel("def kernel_fn(x): return x.cuda()"), tmp_path)
    with pytest.raises(KernelFault) as caught:
        executable.inferred_inputs(1)
    assert caught.value.status is Status.UNSUPPORTED
