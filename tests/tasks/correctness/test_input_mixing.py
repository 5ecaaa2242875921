"""Mixed sets are new ones, of the same spread and signs, and no sums of those that a kernel has seen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tasks.correctness.input_mixing import MOST, MixedInputs


def drawn(seed: int) -> list[object]:
    generator = torch.Generator().manual_seed(seed)
    one = torch.randn(64, 96, generator=generator)
    return [one, torch.arange(96), (one + 2 * one.flip(0)).to(torch.bfloat16).t(), 3]


def mixer(sets: int) -> MixedInputs:
    made = MixedInputs(17)
    made.store(drawn(seed) for seed in range(sets))
    return made


def tensors(arguments: list[object]) -> list[torch.Tensor]:
    return [argument for argument in arguments if isinstance(argument, torch.Tensor)]


def test_a_mixed_set_is_new_and_alike() -> None:
    made = mixer(3)
    assert made.possible
    seen = [tensors(drawn(seed))[0] for seed in range(3)] + [tensors(made.of(number))[0] for number in range(20)]
    assert len({tuple(one.flatten()[:4].tolist()) for one in seen}) == len(seen)
    for one in seen:
        assert 0.9 < float(one.std()) < 1.1 and abs(float(one.mean())) < 0.1
    assert torch.equal(*(tensors(made.of(5))[0] for _ in range(2)))


def test_form_and_all_that_is_no_plain_random_number_stay() -> None:
    _, integers, other = tensors(mixer(2).of(1))
    assert torch.equal(integers, torch.arange(96)) and mixer(2).of(1)[3] == 3
    assert (other.dtype, other.shape, other.stride()) == (torch.bfloat16, (96, 64), (1, 96))


def test_a_mixed_set_is_no_sum_of_drawn_ones() -> None:
    seen = torch.stack([tensors(drawn(seed))[0].flatten() for seed in range(3)], 1).double()
    for number in range(5):
        new = tensors(mixer(3).of(number))[0].flatten().double()[:, None]
        left = new - seen @ torch.linalg.lstsq(seen, new).solution
        assert 0.3 < float(left.norm() / new.norm()) < 0.6


def test_what_was_equal_or_a_sum_stays_so() -> None:
    def related(seed: int) -> list[object]:
        generator = torch.Generator().manual_seed(seed)
        a, b = (torch.randn(64, 96, generator=generator) for _ in range(2))
        return [a, b, a.clone(), a + b, torch.softmax(b, -1)]

    made = MixedInputs(17)
    made.store(related(seed) for seed in range(3))
    a, b, again, both, probabilities = tensors(made.of(4))
    assert torch.equal(a, again) and not torch.equal(a, b)
    assert torch.allclose(both, a + b, atol=1e-5) and torch.allclose(probabilities, torch.softmax(b, -1))


@pytest.mark.parametrize(
    "drawn",
    [
        lambda: torch.rand(64, 96),
        lambda: torch.rand(64, 96) * 2 - 1,
        lambda: torch.rand(64, 96).cumsum(-1),
        lambda: (a := torch.rand(64, 64)) @ a.T + torch.eye(64),
        lambda: torch.softmax(torch.randn(64, 96), -1),
        lambda: torch.nn.functional.normalize(torch.randn(64, 96), dim=-1),
        lambda: torch.randint(9, (64, 96)),
        lambda: torch.randn(64, 64).tril(),
    ],
    ids=["one sign", "bounded", "sorted", "definite", "sums of one", "norms of one", "integers", "a triangle"],
)
def test_what_may_stand_for_something_is_not_mixed(drawn: Callable[[], torch.Tensor]) -> None:
    made = MixedInputs(17)
    made.store([drawn()] for _ in range(3))
    assert not made.possible


def test_zeros_of_one_set_stay() -> None:
    sets = [torch.nn.functional.dropout(torch.randn(64, 96)).expand(2, 64, 96) for _ in range(2)]
    made = MixedInputs(17)
    made.store([one] for one in sets)
    (mixed,) = tensors(made.of(1))
    assert any(torch.equal(mixed == 0, one == 0) and not torch.equal(mixed, one) for one in sets)


def test_one_set_or_nothing_random_is_not_to_be_mixed() -> None:
    assert not mixer(1).possible
    made = MixedInputs(17)
    made.store([[torch.arange(99)], [torch.arange(99)]])
    assert not made.possible


def test_only_some_are_kept() -> None:
    assert len(mixer(MOST + 5)._stored) == MOST


def test_sets_of_different_forms_are_not_mixed() -> None:
    made = MixedInputs(17)
    made.store([[torch.randn(40, 3)], [torch.randn(50, 3)]])
    assert not made.possible
    made.store([[torch.randn(40, 3)]])
    assert made.possible and all(tensors(made.of(number))[0].shape == (40, 3) for number in range(4))
