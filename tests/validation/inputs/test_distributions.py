"""Distributions keep shape, layout and dtype; what looks like anything but plain random numbers is recognised."""

from __future__ import annotations

import pytest
import torch

from validation.inputs.distributions import DISTRIBUTIONS, OUTLIER, SPARSE, Distribution, moved
from validation.inputs.value_traits import Nature, nature

BY_NAME = {one.name: one for one in DISTRIBUTIONS}


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def rms(tensor: torch.Tensor) -> float:
    return float(tensor.double().square().mean().sqrt())


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda one: one.name)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_a_distribution_keeps_everything_but_the_values(distribution: Distribution, dtype: torch.dtype) -> None:
    drawn = normal(32, 48, dtype=dtype).t()
    made = distribution.of(drawn, 7)
    assert (made.shape, made.stride(), made.dtype) == (drawn.shape, drawn.stride(), dtype)
    assert made.isfinite().all() and not torch.equal(made, drawn)
    assert torch.equal(made, distribution.of(drawn, 7))
    assert torch.equal(drawn, normal(32, 48, dtype=dtype).t())


def test_each_is_what_its_name_says() -> None:
    drawn = normal(64, 100) * 0.02
    made = {name: one.of(drawn, 3) for name, one in BY_NAME.items()}
    assert rms(made["small"]) == pytest.approx(1e-3, rel=1e-3) and rms(made["large"]) == pytest.approx(30, rel=1e-3)
    assert (made["positive"] > 0).all() and (made["negative"] < 0).all()
    assert (made["far below"] < -50).all() and torch.equal(BY_NAME["far below"].of(drawn, 3, 1), drawn)
    assert (BY_NAME["negative"].of(drawn, 3, 1) > 0).all()
    assert (made["constant rows"] == drawn[:, :1]).all()
    zeros = made["zeros"] == 0
    assert zeros.all(0).sum() == zeros.all(1).sum() == 1 and 0.2 < float(zeros.double().mean()) < 0.35
    assert torch.equal(made["zeros"][~zeros], drawn[~zeros])
    far = made["outliers"].abs() > OUTLIER * rms(drawn) * 0.9
    assert 2 <= int(far.sum()) <= drawn.numel() // 100 and far[-1, -1]
    assert int(far[:, -1].sum()) >= 3 and int(far[-1].sum()) >= 3 and (made["outliers"][:, -1][far[:, -1]] > 0).all()
    assert (BY_NAME["outliers"].of(drawn, 3, 1)[-1, -1] < 0).all()
    assert (made["outliers"][far] > 0).any() and (made["outliers"][far] < 0).any()
    assert torch.equal(made["outliers"][~far], drawn[~far])
    assert not torch.equal(made["outliers"], BY_NAME["outliers"].of(drawn, 4))


def test_uniform_noise_is_made_sparse_within_its_range() -> None:
    drawn = torch.rand(64, 100, generator=torch.Generator().manual_seed(0))
    made = SPARSE.of(drawn, 3)
    kept = made == drawn
    assert 0.08 < float(kept.double().mean()) < 0.17 and made.min() >= 0 and made.max() < 1
    assert torch.equal(made[~kept], (drawn * 0.01)[~kept]) and not torch.equal(made, SPARSE.of(drawn, 4))


def test_nothing_leaves_what_the_dtype_holds() -> None:
    large = normal(64, 64, dtype=torch.float16) * 8000
    for distribution in DISTRIBUTIONS:
        assert distribution.of(large, 1).isfinite().all(), distribution.name


def test_gaps_of_a_strided_tensor_hold_poison_and_repeated_elements_stay_one() -> None:
    made = BY_NAME["large"].of(torch.zeros(64).as_strided((8, 4), (8, 1)).copy_(normal(8, 4)), 1)
    assert made.stride() == (8, 1) and made.as_strided((7, 4), (8, 1), 4).isnan().all()
    repeated = normal(32, 1).expand(32, 5)
    assert BY_NAME["positive"].of(repeated, 1).stride() == (1, 0)


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (normal(64, 32), Nature.PLAIN),
        (normal(64, 32, dtype=torch.bfloat16), Nature.PLAIN),
        (normal(64, 32, dtype=torch.float16) * 30, Nature.PLAIN),
        (normal(1000), Nature.PLAIN),
        (normal(64, 64), Nature.PLAIN),
        (torch.arange(64), Nature.NOT_FLOATING),
        (normal(64).to(torch.float8_e4m3fn), Nature.NOT_FLOATING),
        (torch.tensor([True] * 32), Nature.NOT_FLOATING),
        (torch.complex(normal(64), normal(64, seed=1)), Nature.NOT_FLOATING),
        (normal(4), Nature.SMALL),
        (normal(1).expand(64), Nature.SMALL),
        (torch.where(normal(8, 8) > 0, 0.0, -torch.inf), Nature.NOT_FINITE),
        (torch.rand(100), Nature.ONE_SIGN),
        (torch.rand(64, 64, generator=torch.Generator().manual_seed(0)), Nature.UNIFORM),
        (torch.rand(1000, generator=torch.Generator().manual_seed(0)).half(), Nature.UNIFORM),
        (torch.rand(1000, generator=torch.Generator().manual_seed(0)).sort().values, Nature.ONE_SIGN),
        (torch.rand(1000, generator=torch.Generator().manual_seed(0)) * 0.9, Nature.ONE_SIGN),
        (torch.rand(64, 64).softmax(-1), Nature.ONE_SIGN),
        (normal(100).abs(), Nature.ONE_SIGN),
        (normal(100).softmax(0), Nature.ONE_SIGN),
        (normal(100) * 0.1 + 1, Nature.ONE_SIGN),
        (torch.rand(1000) * 2 - 1, Nature.BOUNDED),
        (normal(1000).tanh(), Nature.BOUNDED),
        (normal(1000).sign(), Nature.DISCRETE),
        (normal(1000).round(), Nature.DISCRETE),
        (torch.zeros(1000), Nature.DISCRETE),
        (normal(32, 32).tril(), Nature.DISCRETE),
        (normal(100).sort().values, Nature.SORTED),
        (normal(4, 100).sort(-1, descending=True).values, Nature.SORTED),
        (torch.nn.functional.normalize(normal(32, 64), dim=-1), Nature.UNIT_ROWS),
        (normal(32, 32) + normal(32, 32).T, Nature.SYMMETRIC),
    ],
)
def test_what_values_look_like(tensor: torch.Tensor, expected: Nature) -> None:
    assert nature(tensor) is expected


def test_a_declared_normal_may_be_anything_but_of_one_sign() -> None:
    assert nature(normal(20), declared_normal=True) is Nature.PLAIN
    assert nature(normal(100) + 9, declared_normal=True) is Nature.ONE_SIGN


def test_moving_is_a_relative_step_up_or_down_in_the_same_layout() -> None:
    drawn = normal(50, 40).t()
    step = moved(drawn, 1e-3, 1)
    ratio = step.double() / drawn.double()
    assert step.stride() == drawn.stride() and not torch.equal(step, moved(drawn, 1e-3, 2))
    size = (ratio - 1).abs()
    assert float(size.min()) > 0.49e-3 and float(size.max()) < 1.51e-3
    back = moved(drawn, -1e-3, 1).double() / drawn.double()
    assert (ratio + back - 2).abs().max() < 1e-6
    assert 0.4 < float((ratio > 1).double().mean()) < 0.6


def test_zeros_are_moved_only_where_that_is_asked_for() -> None:
    drawn = BY_NAME["zeros"].of(normal(50, 40), 5)
    still, gone = moved(drawn, 1e-3, 1), moved(drawn, 1e-3, 1, zeros=True)
    zeros = drawn == 0
    assert (still[zeros] == 0).all() and torch.equal(still[~zeros], gone[~zeros])
    steps = gone[zeros].double().abs() / rms(drawn)
    assert float(steps.min()) > 0.49e-3 and float(steps.max()) < 1.51e-3
    assert torch.equal(moved(drawn, -1e-3, 1, zeros=True)[zeros], -gone[zeros])


def test_a_single_row_has_zeros_as_well() -> None:
    made = BY_NAME["zeros"].of(normal(1, 5, 40), 5)
    assert (made == 0).all(-1).sum() == 1 and (made == 0).all(1).sum() == 1 and made.ne(0).any()
