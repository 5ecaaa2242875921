"""Distributions keep shape, layout and dtype; what looks like anything but plain random numbers is recognised."""

from __future__ import annotations

import pytest
import torch

from domain.inputs import InputGrade
from validation.inputs.distributions import (
    DISTRIBUTIONS,
    OUTLIER,
    UNEVEN,
    Distribution,
    perturbed,
)
from validation.inputs.value_traits import ValueTraits, classify_values

CHANGING = [one for one in DISTRIBUTIONS if one.change is not None]
BY_NAME = {one.name: one for one in CHANGING}


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def rms(tensor: torch.Tensor) -> float:
    return float(tensor.double().square().mean().sqrt())


@pytest.mark.parametrize("distribution", CHANGING, ids=lambda one: one.name)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_a_distribution_keeps_everything_but_the_values(distribution: Distribution, dtype: torch.dtype) -> None:
    drawn = normal(32, 48, dtype=dtype).t()
    made = distribution.apply(drawn, 7)
    assert (made.shape, made.stride(), made.dtype) == (drawn.shape, drawn.stride(), dtype)
    assert made.isfinite().all() and not torch.equal(made, drawn)
    assert torch.equal(made, distribution.apply(drawn, 7))
    assert torch.equal(drawn, normal(32, 48, dtype=dtype).t())


def test_each_is_what_its_name_says() -> None:
    drawn = normal(64, 100) * 0.02
    made = {name: one.apply(drawn, 3) for name, one in BY_NAME.items()}
    assert rms(made["small"]) == pytest.approx(1e-3, rel=1e-3) and (made["shifted"] < 0).all()
    assert (made["far below"] < -50).all() and torch.equal(BY_NAME["far below"].apply(drawn, 3, 1), drawn)
    assert (BY_NAME["shifted"].apply(drawn, 3, 1) > 0).all()
    zeros = made["zeros"] == 0
    assert zeros.all(0).sum() == zeros.all(1).sum() == 1 and 0.2 < float(zeros.double().mean()) < 0.35
    assert torch.equal(made["zeros"][~zeros], drawn[~zeros])
    far = made["outliers"].abs() > OUTLIER * rms(drawn) * 0.9
    assert 2 <= int(far.sum()) <= drawn.numel() // 100 and far[-1, -1]
    assert int(far[:, -1].sum()) >= 3 and int(far[-1].sum()) >= 3 and (made["outliers"][:, -1][far[:, -1]] > 0).all()
    assert (BY_NAME["outliers"].apply(drawn, 3, 1)[-1, -1] < 0).all()
    assert (made["outliers"][far] > 0).any() and (made["outliers"][far] < 0).any()
    assert torch.equal(made["outliers"][~far], drawn[~far])
    assert not torch.equal(made["outliers"], BY_NAME["outliers"].apply(drawn, 4))


def test_rows_get_means_and_spreads_of_their_own_within_the_drawn_range() -> None:
    drawn = normal(64, 1000) * 0.02
    for number, sign in ((0, 1), (1, -1)):
        made = UNEVEN.apply(drawn, 3, number)
        means, spreads = sign * made.mean(-1) / rms(drawn), made.std(-1) / drawn.std(-1)
        assert means.min() > -0.1 and means.max() < 0.85 and 0.3 < float(means.mean()) < 0.45
        assert spreads.min() > 0.24 and spreads.max() < 0.76 and spreads.max() > 2 * spreads.min()
        assert made.abs().max() <= drawn.abs().max()


def test_only_the_drawn_and_what_keeps_to_their_range_are_of_the_task() -> None:
    grades = {one.name: one.grade for one in DISTRIBUTIONS}
    beyond = {name for name, grade in grades.items() if grade is InputGrade.BEYOND}
    assert grades["drawn"] is InputGrade.AS_DRAWN
    assert {name for name, grade in grades.items() if grade is InputGrade.AS_STRUCTURED} == {
        "uneven",
        "skewed indices",
        "equal indices",
    }
    assert beyond == {"small", "shifted", "zeros", "outliers", "far below"}


def test_nothing_leaves_what_the_dtype_holds() -> None:
    large = normal(64, 64, dtype=torch.float16) * 8000
    for distribution in CHANGING:
        assert distribution.apply(large, 1).isfinite().all(), distribution.name


def test_gaps_of_a_strided_tensor_hold_poison_and_repeated_elements_stay_one() -> None:
    made = BY_NAME["outliers"].apply(torch.zeros(64).as_strided((8, 4), (8, 1)).copy_(normal(8, 4)), 1)
    assert made.stride() == (8, 1) and made.as_strided((7, 4), (8, 1), 4).isnan().all()
    repeated = normal(32, 1).expand(32, 5)
    assert BY_NAME["shifted"].apply(repeated, 1).stride() == (1, 0)


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (normal(64, 32), ValueTraits.PLAIN),
        (normal(64, 32, dtype=torch.bfloat16), ValueTraits.PLAIN),
        (normal(64, 32, dtype=torch.float16) * 30, ValueTraits.PLAIN),
        (normal(1000), ValueTraits.PLAIN),
        (normal(64, 64), ValueTraits.PLAIN),
        (torch.arange(64), ValueTraits.NOT_FLOATING),
        (normal(64).to(torch.float8_e4m3fn), ValueTraits.NOT_FLOATING),
        (torch.tensor([True] * 32), ValueTraits.NOT_FLOATING),
        (torch.complex(normal(64), normal(64, seed=1)), ValueTraits.NOT_FLOATING),
        (normal(4), ValueTraits.SMALL),
        (normal(1).expand(64), ValueTraits.SMALL),
        (torch.where(normal(8, 8) > 0, 0.0, -torch.inf), ValueTraits.NOT_FINITE),
        (torch.rand(100), ValueTraits.ONE_SIGN),
        (torch.rand(1000, generator=torch.Generator().manual_seed(0)).sort().values, ValueTraits.SORTED),
        (torch.rand(1000, generator=torch.Generator().manual_seed(0)) * 0.9, ValueTraits.ONE_SIGN),
        (torch.rand(64, 64).softmax(-1), ValueTraits.STRUCTURED),
        (normal(100).abs(), ValueTraits.ONE_SIGN),
        (normal(100).softmax(0), ValueTraits.STRUCTURED),
        (normal(100) * 0.1 + 1, ValueTraits.ONE_SIGN),
        (torch.rand(1000) * 2 - 1, ValueTraits.BOUNDED),
        (normal(64, 64) * (torch.arange(64) % 4 > 0), ValueTraits.SPARSE),
        (normal(64, 64) * (torch.arange(64) % 16 == 0), ValueTraits.SPARSE),
        ((torch.rand(64, 64) * 2 - 1) * (torch.arange(64) % 4 > 0), ValueTraits.BOUNDED),
        (normal(64, 64).relu(), ValueTraits.ONE_SIGN),
        (normal(1000).tanh(), ValueTraits.BOUNDED),
        (normal(1000).sign(), ValueTraits.DISCRETE),
        (normal(1000).round(), ValueTraits.DISCRETE),
        (torch.zeros(1000), ValueTraits.DISCRETE),
        (normal(32, 32).tril() + normal(32, 32).tril().T, ValueTraits.STRUCTURED),
        (normal(100).sort().values, ValueTraits.SORTED),
        (normal(4, 100).sort(-1, descending=True).values, ValueTraits.SORTED),
        (torch.nn.functional.normalize(normal(32, 64), dim=-1), ValueTraits.STRUCTURED),
        (normal(32, 32) + normal(32, 32).T, ValueTraits.STRUCTURED),
    ],
)
def test_what_values_look_like(tensor: torch.Tensor, expected: ValueTraits) -> None:
    assert classify_values(tensor) is expected


def test_a_declared_normal_may_be_anything_but_of_one_sign() -> None:
    assert classify_values(normal(20), declared_normal=True) is ValueTraits.PLAIN
    assert classify_values(normal(100) + 9, declared_normal=True) is ValueTraits.ONE_SIGN


def test_moving_is_a_relative_step_up_or_down_in_the_same_layout() -> None:
    drawn = normal(50, 40).t()
    step = perturbed(drawn, 1e-3, 1)
    ratio = step.double() / drawn.double()
    assert step.stride() == drawn.stride() and not torch.equal(step, perturbed(drawn, 1e-3, 2))
    size = (ratio - 1).abs()
    assert float(size.min()) > 0.49e-3 and float(size.max()) < 1.51e-3
    back = perturbed(drawn, -1e-3, 1).double() / drawn.double()
    assert (ratio + back - 2).abs().max() < 1e-6
    assert 0.4 < float((ratio > 1).double().mean()) < 0.6


def test_zeros_are_moved_only_where_that_is_asked_for() -> None:
    drawn = BY_NAME["zeros"].apply(normal(50, 40), 5)
    still, gone = perturbed(drawn, 1e-3, 1), perturbed(drawn, 1e-3, 1, zeros=True)
    zeros = drawn == 0
    assert (still[zeros] == 0).all() and torch.equal(still[~zeros], gone[~zeros])
    steps = gone[zeros].double().abs() / rms(drawn)
    assert float(steps.min()) > 0.49e-3 and float(steps.max()) < 1.51e-3
    assert torch.equal(perturbed(drawn, -1e-3, 1, zeros=True)[zeros], -gone[zeros])


def test_a_single_row_has_zeros_as_well() -> None:
    made = BY_NAME["zeros"].apply(normal(1, 5, 40), 5)
    assert (made == 0).all(-1).sum() == 1 and (made == 0).all(1).sum() == 1 and made.ne(0).any()
