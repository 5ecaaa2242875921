"""A contract's tensor in every set: small ones are drawn many sets at a time, and nothing of a set tells."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from backends.dtypes import torch_dtype
from domain.contract import TensorInit, TensorSpec
from domain.dtype import CODES, ITEM_BYTES
from validation.compare.bitwise import identical
from validation.inputs import poison_fill
from validation.inputs import tensor_source as module
from validation.inputs.contract_inputs import GROUP
from validation.inputs.tensor_source import TensorSource
from validation.inputs.tensor_spec import make_group, make_tensor

SECRET = 7
RANDOM = ["randn", "uniform", "randint"]
SOME = [0, 1, 2, 3, GROUP, GROUP + 1, GROUP + 2, 40 * GROUP, 1 << 40]


def spec(
    *shape: int, dtype: str = "float32", kind: str = "randn", strides: tuple[int, ...] | None = None
) -> TensorSpec:
    return TensorSpec(shape, dtype, strides, init=TensorInit(kind))


@pytest.fixture
def grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets are drawn in groups on the CPU too."""
    monkeypatch.setattr(module, "PREDICTABLE", frozenset())


def fresh_tensor(of: TensorSpec, secret: int = SECRET, position: int = 0, *, blank: bool = False) -> TensorSource:
    return TensorSource(of, "cpu", secret, position, group=GROUP, blank=blank)


@pytest.mark.usefixtures("grouped")
@pytest.mark.parametrize(("kind", "name"), list(itertools.product(RANDOM, sorted(set(ITEM_BYTES) - CODES))))
def test_no_two_sets_are_equal_and_each_is_the_same_whenever_it_is_asked_for(kind: str, name: str) -> None:
    of = spec(5, 50, dtype=name, kind=kind)
    one, other = fresh_tensor(of), fresh_tensor(of)
    sets = {number: one.draw(number) for number in SOME}
    for tensor in sets.values():
        assert (tensor.dtype, tensor.shape) == (torch_dtype(name), (5, 50)) and tensor.is_contiguous()
        assert not tensor.to(torch.complex128).isnan().any()
    again = {number: other.draw(number) for number in reversed(SOME)}
    assert all(identical(sets[number], again[number]) for number in SOME)
    elsewhere = [fresh_tensor(of, secret=8).draw(1), fresh_tensor(of, position=1).draw(1)]
    assert not any(identical(*pair) for pair in itertools.combinations([*sets.values(), *elsewhere], 2))


def test_the_first_set_is_the_contracts_own() -> None:
    own = TensorSpec((64,), "float32", init=TensorInit("randn", seed=42))
    assert identical(fresh_tensor(own).draw(0), torch.randn(64, generator=torch.Generator().manual_seed(42)))
    assert not identical(fresh_tensor(own).draw(1), fresh_tensor(own, secret=8).draw(1))


@pytest.mark.usefixtures("grouped")
def test_every_other_set_is_skewed_and_not_all_in_one_place() -> None:
    drawn = fresh_tensor(spec(4096))
    odd, even = ([drawn.draw(number) for number in range(start, GROUP, 2)] for start in (1, 2))
    # Of a normal, an eighth to a half is mirrored up: its mean is 0.8 there.
    assert all(tensor.mean() > 0.06 for tensor in odd) and all(abs(tensor.mean()) < 0.06 for tensor in even)
    stretches = {tuple((tensor.view(32, 128).mean(dim=-1) > 0.4).tolist()) for tensor in odd}
    assert len(stretches) >= 4


@pytest.mark.parametrize("size", [2, 3, 5, 63])
def test_groups_of_any_size_skew_the_sets_of_odd_numbers(size: int) -> None:
    for group in range(2):
        of = spec(1 << 14)
        means = make_group(of, device="cpu", seed=SECRET, position=0, group=group, size=size).mean(dim=1)
        numbers = range(1 + group * size, 1 + (group + 1) * size)
        assert [mean > 0.06 for mean in means.tolist()] == [number % 2 == 1 for number in numbers]


@pytest.mark.usefixtures("grouped")
@pytest.mark.parametrize("kind", ["uniform", "randint"])
def test_skewed_values_stay_within_the_contracts_bounds(kind: str) -> None:
    of = TensorSpec((200,), "int16", init=TensorInit(kind, low=-3, high=5))
    drawn = torch.stack([fresh_tensor(of).draw(number) for number in range(1, GROUP + 1)])
    assert drawn.min() == -3 and drawn.max() == (5 if kind == "uniform" else 4)


@pytest.mark.usefixtures("grouped")
@pytest.mark.parametrize("of", [spec(8, 8, strides=(1, 8)), spec(8, 8, strides=(0, 1))])
def test_what_has_a_layout_of_its_own_is_made_by_itself(of: TensorSpec) -> None:
    drawn = fresh_tensor(of)
    for number in (1, 2):
        assert identical(drawn.draw(number), make_tensor(of, device="cpu", seed=SECRET, position=0, fresh=number))


def next_words(words: list[int]) -> random.Random:
    """A Mersenne Twister behind those 624 words of it."""
    state = []
    for word in words:
        for shift, mask in ((-18, 0xFFFFFFFF), (15, 0xEFC60000), (7, 0x9D2C5680), (-11, 0xFFFFFFFF)):
            tempered = word
            for _ in range(5):
                word = tempered ^ ((word << shift if shift > 0 else word >> -shift) & mask)
        state.append(word)
    behind = random.Random()
    behind.setstate((3, (*state, len(state)), None))
    return behind


def test_of_a_set_on_the_cpu_the_next_ones_do_not_follow() -> None:
    low, count = -(2**63), 312
    drawn = fresh_tensor(TensorSpec((count,), "int64", init=TensorInit("randint", low=low, high=2**63 - 1)))
    seen = [number - low for number in drawn.draw(2).tolist()]
    words = next_words([word for number in seen for word in (number >> 32, number & 0xFFFFFFFF)])
    foretold = [words.getrandbits(32) << 32 | words.getrandbits(32) for _ in range(2 * count)]
    assert not {number + low for number in foretold} & set(drawn.draw(4).tolist())


def test_what_is_the_same_in_many_sets_is_made_once() -> None:
    ones, blank = fresh_tensor(spec(8, kind="ones")), fresh_tensor(spec(8, kind="empty"), blank=True)
    assert ones.draw(0) is ones.draw(1) is ones.draw(70) and bool(ones.draw(0).eq(1).all())
    assert blank.draw(0) is blank.draw(2) and blank.draw(1) is blank.draw(3)
    assert blank.draw(0).isnan().all() and blank.draw(1).isfinite().all()
    assert poison_fill.unwritten_fraction(blank.draw(1)) == 1.0


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(ITEM_BYTES))
def test_a_card_draws_groups_of_every_dtype(name: str) -> None:
    drawn = TensorSource(spec(3, 50, dtype=name), "cuda", SECRET, 0, group=GROUP, blank=False)
    sets = [drawn.draw(number) for number in (1, 2, 3, GROUP + 1)]
    assert all(tensor.is_cuda and tensor.dtype is torch_dtype(name) and tensor.shape == (3, 50) for tensor in sets)
    assert not any(identical(*pair) for pair in itertools.combinations(sets, 2))
    assert identical(
        TensorSource(spec(3, 50, dtype=name), "cuda", SECRET, 0, group=GROUP, blank=False).draw(2), sets[1]
    )
