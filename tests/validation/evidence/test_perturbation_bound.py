"""On every distribution: what is computed another way, or in another precision, is right; what is broken is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from validation.compare.tolerance import Tolerance, requested
from validation.evidence.perturbation_bound import NoiseCheck, check_against_noise, move_size
from validation.evidence.reduced_precision import TF32, rounded
from validation.inputs.distributions import DISTRIBUTIONS, Distribution, perturbed

Kernel = Callable[..., torch.Tensor]

LOOSE, NAMED, TIGHT = requested(None, None), Tolerance(1e-2, 1e-2), Tolerance(1e-5, 1e-5)


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def found(
    reference: Kernel,
    candidate: Kernel,
    inputs: list[torch.Tensor],
    distribution: Distribution,
    tolerance: Tolerance,
    *,
    with_exact: bool = True,
) -> NoiseCheck:
    given = [distribution.apply(tensor, seed, seed) for seed, tensor in enumerate(inputs)]
    by = move_size(tolerance, given)

    def turn(number: int, wide: bool) -> list[torch.Tensor]:
        tensors = [tensor.double() if wide else tensor for tensor in given]
        signed = by if number > 0 else -by
        seeds = [10 * abs(number) + seed for seed in range(len(tensors))]
        pairs = zip(tensors, seeds, strict=True)
        return [reference(*(perturbed(tensor, signed, seed, zeros=distribution.tied) for tensor, seed in pairs))]

    exact = [reference(*(tensor.double() for tensor in given))] if with_exact else None
    moves = [turn(number, with_exact) for number in (1, -1, 2)]
    return check_against_noise(
        [reference(*given)], [candidate(*given)], exact, moves, tolerance, tied=distribution.tied
    )


def tf32(kernel: Kernel) -> Kernel:
    return lambda *tensors: kernel(*(rounded(tensor, TF32) for tensor in tensors))


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.T / math.sqrt(q.shape[-1]), -1) @ v


def tf32_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = rounded(q, TF32) @ rounded(k, TF32).T / math.sqrt(q.shape[-1])
    return rounded(torch.softmax(scores, -1), TF32) @ rounded(v, TF32)


def one_pass_norm(x: torch.Tensor) -> torch.Tensor:
    wide = x.float() if x.element_size() < 4 else x
    mean = wide.mean(-1, keepdim=True)
    variance = (wide * wide).mean(-1, keepdim=True) - mean * mean
    return ((wide - mean) * torch.rsqrt(variance.clamp(min=0) + 1e-5)).to(x.dtype)


def norm(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:])


def chain(x: torch.Tensor) -> torch.Tensor:
    y = x
    for _ in range(60):
        y = torch.cos(y + x)
    return y


def other_chain(x: torch.Tensor) -> torch.Tensor:
    y = x
    for _ in range(60):
        y = torch.sin(math.pi / 2 - (x + y))
    return y


def linear(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return x @ w.T + b


HALF, BRAIN = torch.float16, torch.bfloat16

HONEST: dict[str, tuple[Kernel, Kernel, list[torch.Tensor], Tolerance]] = {
    "product in TF32": (torch.matmul, tf32(torch.matmul), [normal(64, 128), normal(128, 96, seed=1)], LOOSE),
    "product in TF32, named": (torch.matmul, tf32(torch.matmul), [normal(64, 128), normal(128, 96, seed=1)], NAMED),
    "attention in TF32": (attention, tf32_attention, [normal(64, 32, seed=s) for s in range(3)], LOOSE),
    "attention in float16": (
        lambda q, k, v: (
            attention(q.float(), k.float(), v.float()).to(q.dtype) if q.dtype is HALF else attention(q, k, v)
        ),
        lambda q, k, v: torch.softmax((q @ k.T / math.sqrt(32)).float(), -1).half() @ v,
        [normal(64, 32, dtype=HALF, seed=s) for s in range(3)],
        LOOSE,
    ),
    "one-pass norm": (norm, one_pass_norm, [normal(16, 300)], TIGHT),
    "one-pass norm of bfloat16": (norm, one_pass_norm, [normal(16, 300, dtype=BRAIN)], LOOSE),
    "exp2 for exp": (
        lambda x: torch.softmax(x, -1),
        lambda x: (e := torch.exp2((x - x.amax(-1, keepdim=True)) * 1.4426950408889634)) / e.sum(-1, keepdim=True),
        [normal(8, 100)],
        TIGHT,
    ),
    "softmax by logsumexp": (
        lambda x: torch.softmax(x, -1),
        lambda x: (x - torch.logsumexp(x, -1, keepdim=True)).exp(),
        [normal(8, 100)],
        LOOSE,
    ),
    "a sum in another order": (lambda x: x.sum(-1), lambda x: x.flip(-1).cumsum(-1)[..., -1], [normal(9, 4096)], TIGHT),
    "a sum that cancels": (lambda x: x.sum(), lambda x: x.flip(-1).cumsum(-1)[..., -1].sum(), [normal(9, 4096)], TIGHT),
    "a chain that amplifies": (chain, other_chain, [normal(64, 64)], LOOSE),
    "a linear layer in bfloat16": (
        linear,
        lambda x, w, b: (x.float() @ w.float().T + b.float()).bfloat16(),
        [normal(32, 64, dtype=BRAIN), normal(16, 64, dtype=BRAIN, seed=1), normal(16, dtype=BRAIN, seed=2)],
        LOOSE,
    ),
    "ties broken otherwise": (
        lambda x: x.argmax(-1),
        lambda x: x.shape[-1] - 1 - x.flip(-1).argmax(-1),
        [normal(32, 100)],
        LOOSE,
    ),
    "ties of bfloat16 broken otherwise": (
        lambda x: x.argmax(-1),
        lambda x: x.shape[-1] - 1 - x.flip(-1).argmax(-1),
        [normal(64, 500, dtype=BRAIN)],
        LOOSE,
    ),
    "gelu by tanh in float16": (
        F.gelu,
        lambda x: F.gelu(x, approximate="tanh"),
        [normal(33, 100, dtype=HALF)],
        LOOSE,
    ),
    "log1p as log": (
        lambda x: torch.log1p(x.abs()),
        lambda x: torch.log(1 + x.abs()),
        [normal(33, 100, dtype=HALF)],
        LOOSE,
    ),
    "a distance by products": (
        lambda x, y: torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist"),
        lambda x, y: (x.square().sum(-1)[:, None] + y.square().sum(-1)[None] - 2 * x @ y.T).clamp(min=0).sqrt(),
        [normal(20, 64), normal(30, 64, seed=1)],
        LOOSE,
    ),
    "places of many equal elements": (
        lambda x: x.sort(dim=-1, stable=True).indices,
        lambda x: x.shape[-1] - 1 - x.flip(-1).sort(dim=-1, stable=True).indices,
        [normal(4000, 33)],
        LOOSE,
    ),
    "the last of equal elements as one of many": (
        lambda x: F.one_hot(x.argmax(0), 128).T.to(x.dtype),
        lambda x: F.one_hot(127 - x.flip(0).argmax(0), 128).T.to(x.dtype),
        [normal(128, 64)],
        LOOSE,
    ),
    "a guard of another kind": (
        lambda x: F.normalize(x, dim=-1),
        lambda x: x / (x.norm(dim=-1, keepdim=True) + 1e-12),
        [normal(64, 100)],
        LOOSE,
    ),
    "zero counted to the other side": (
        lambda x: (x > 0).to(x.dtype),
        lambda x: (x >= 0).to(x.dtype),
        [normal(64, 100)],
        LOOSE,
    ),
    "a division by a sum that may vanish": (
        lambda x: x / x.sum(-1, keepdim=True),
        lambda x: x * (1 / x.flip(-1).sum(-1, keepdim=True)),
        [normal(64, 100)],
        LOOSE,
    ),
}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda one: one.name)
@pytest.mark.parametrize("name", HONEST)
@pytest.mark.parametrize("with_exact", [True, False])
def test_an_honest_kernel_is_not_called_wrong(name: str, distribution: Distribution, with_exact: bool) -> None:
    reference, candidate, inputs, tolerance = HONEST[name]
    finding = found(reference, candidate, inputs, distribution, tolerance, with_exact=with_exact)
    assert not finding.wrong, finding


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


BROKEN: dict[str, tuple[str, Kernel, Kernel, list[torch.Tensor]]] = {
    "no maximum taken off": (
        "outliers",
        softmax,
        lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
        [normal(8, 100)],
    ),
    "saturates at 6": ("outliers", F.gelu, lambda x: F.gelu(x).clamp(max=6), [normal(37, 129)]),
    "an epsilon a hundred times too small": (
        "small",
        lambda x: F.rms_norm(x, (96,), eps=1e-5),
        lambda x: F.rms_norm(x, (96,), eps=1e-7),
        [normal(10, 96)],
    ),
    "no epsilon": ("zeros", norm, lambda x: F.layer_norm(x, (96,), eps=0.0), [normal(10, 96)]),
    "a maximum that begins at zero": (
        "shifted",
        lambda x: x.amax(-1),
        lambda x: x.amax(-1).clamp(min=0),
        [normal(9, 64)],
    ),
    "squares in half precision": (
        "outliers",
        lambda x: F.rms_norm(x.float(), (96,)).to(x.dtype) if x.dtype is HALF else F.rms_norm(x, (96,)),
        lambda x: x * torch.rsqrt((x * x).sum(-1, keepdim=True) / 96 + 1e-6),
        [normal(10, 96, dtype=HALF)],
    ),
    "no guard beside a norm of zero": (
        "zeros",
        lambda x: F.normalize(x, dim=-1),
        lambda x: x / x.norm(dim=-1, keepdim=True),
        [normal(64, 128)],
    ),
    "no guard beside a column of zeros": (
        "zeros",
        lambda x: F.normalize(x, dim=0),
        lambda x: x * torch.rsqrt(x.square().sum(0, keepdim=True)),
        [normal(64, 128)],
    ),
    "every second element beside an outlier": (
        "outliers",
        lambda x: x * 2,
        lambda x: x * torch.tensor([2.0, 1.5]).repeat(64),
        [normal(64, 128)],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_kernel_is_wrong_where_its_bug_shows(name: str) -> None:
    where, reference, candidate, inputs = BROKEN[name]
    distribution = next(one for one in DISTRIBUTIONS if one.name == where)
    finding = found(reference, candidate, inputs, distribution, LOOSE)
    assert finding.unsound is None and finding.wrong and finding.first is not None, finding


def test_an_outlier_does_not_hide_what_is_wrong_in_other_rows() -> None:
    expected = normal(64, 128)
    expected[0, 0] = 1e4
    actual = expected.clone()
    actual[1:] *= 1.1
    noise = [expected * (1 + 1e-3), expected * (1 - 1e-3)]
    finding = check_against_noise([expected], [actual], [expected.double()], [[one] for one in noise], LOOSE)
    assert finding.wrong > 63 * 128 / 2


def test_a_reference_that_is_not_right_itself_accuses_nobody() -> None:
    x = normal(8, 8)
    finding = check_against_noise([x * 1.5], [x], [x.double()], [[x]], LOOSE)
    assert finding.unsound is not None and "float64" in finding.unsound
    overflown = torch.full((8,), torch.inf, dtype=HALF)
    finding = check_against_noise([overflown], [x[0].half()], [x[0].double() * 1e6], [[x[0].double() * 1e6]], LOOSE)
    assert finding.unsound is not None and "float16" in finding.unsound


def test_infinities_that_the_task_has_are_not_judged_and_the_rest_is() -> None:
    expected = torch.tensor([1.0, torch.inf, torch.nan, 2.0])
    exact, actual = expected.double(), torch.tensor([1.0, 0.0, 0.0, 3.0])
    finding = check_against_noise([expected], [actual], [exact], [[exact]], LOOSE)
    assert (finding.wrong, finding.judged) == (1, 2)
    assert finding.first == {"output": 0, "index": [3], "expected": 2.0, "actual": 3.0}


def test_answers_decided_by_rounding_are_not_judged() -> None:
    ones, twos = torch.ones(4, dtype=torch.int64), torch.full((4,), 2)
    finding = check_against_noise([ones], [twos], [ones], [[twos]], LOOSE)
    assert finding.unsound is not None and "rounding" in finding.unsound
    assert check_against_noise([ones], [twos], [ones], [[ones]], LOOSE).wrong == 4
    assert check_against_noise([ones], [twos], None, [[ones]], LOOSE).unsound is not None


def test_more_than_can_be_examined_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validation.evidence.perturbation_bound.MOST_ELEMENTS", 3)
    x = normal(4)
    assert "too large" in (check_against_noise([x], [x + 1], [x], [[x]], LOOSE).unsound or "")


def test_coarse_inputs_do_not_widen_the_bound() -> None:
    """A move by a unit of bfloat16 is nearly as far as rtol: an output may be off about as far as it moved then."""
    exact, by = torch.zeros(64, dtype=torch.float64), float(torch.finfo(torch.bfloat16).eps)
    moves = [[exact + 1.0], [exact - 1.0]]
    off = [torch.full((64,), 3.0)]
    assert check_against_noise([exact.float()], off, [exact], moves, LOOSE).wrong == 0
    assert check_against_noise([exact.float()], off, [exact], moves, LOOSE, moved_by=by).wrong == 64
    near = [torch.full((64,), 1.2)]
    assert check_against_noise([exact.float()], near, [exact], moves, LOOSE, moved_by=by).wrong == 0


def quantised(x: torch.Tensor, *, scaled: float = 1.0, least: float = 1e-12) -> list[torch.Tensor]:
    """Float8 codes up to the largest, and their scales."""
    scales = x.abs().amax(-1, keepdim=True).clamp(min=least) / 448
    return [(x / scales).to(torch.float8_e4m3fn), scales * scaled]


def test_codes_at_the_largest_float8_leave_no_range_and_hide_no_wrong_scale() -> None:
    """As of a quantiser, which scales each row to it."""
    x = normal(8, 256)
    reference = quantised(x)
    exact = [tensor.double() for tensor in quantised(x.double())]
    moves = [[tensor.double() for tensor in quantised(perturbed(x.double(), by, 1))] for by in (1e-3, -1e-3)]
    atols = [1e-2, 4e-5]

    def check(candidate: list[torch.Tensor]) -> NoiseCheck:
        return check_against_noise(reference, candidate, exact, moves, LOOSE, atols=atols)

    other_side = reference[0].view(torch.uint8).clone()
    other_side[:, ::8] -= 1
    assert check([other_side.view(torch.float8_e4m3fn), reference[1]]) == check(reference)
    assert check(reference).unsound is None and check(reference).wrong == 0
    assert check(quantised(x, scaled=1.1)).wrong == 8
    other_side[3, 7] = 0x7F
    assert check([other_side.view(torch.float8_e4m3fn), reference[1]]).not_finite == 1
