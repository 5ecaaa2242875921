"""Noise on a constructor's constant parameters, and on nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest
import torch
from torch import nn
from torch.nn import init

from sandbox.runner.parameter_noise import NOISE, noised, noised_parameters


def made(make: Callable[[], nn.Module], noise: int | None, *, all_constants: bool = False) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    with noised_parameters(noise, all_constants=all_constants):
        return make().state_dict()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.batch = nn.Linear(4, 4), nn.LayerNorm(4), nn.BatchNorm1d(4)
        self.attention = nn.MultiheadAttention(4, 2)
        self.scale = nn.Parameter(data=torch.ones(3))
        self.one = nn.Parameter(torch.tensor(1.0))
        self.copy = nn.Parameter(self.one.detach().clone())
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.none = nn.Parameter()
        self.register_buffer("mask", torch.ones(3))


CHANGED = {
    *("norm.weight", "norm.bias", "batch.weight", "batch.bias", "batch.running_mean", "batch.running_var"),
    *("attention.in_proj_bias", "attention.out_proj.bias", "scale", "one", "copy"),
}


def test_constant_parameters_have_noise_and_what_is_drawn_is_as_it_was() -> None:
    plain, noisy = made(Model, None), made(Model, 3)
    assert {name for name, value in plain.items() if not torch.equal(value, noisy[name])} == CHANGED
    assert torch.equal(noisy["one"], noisy["copy"]), "a copy of one number is no other number"
    assert all(torch.equal(value, made(Model, None)[name]) for name, value in plain.items()), "none is left behind"


def test_widely_tensors_have_it_of_which_parameters_may_be_made() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            weight = torch.ones(4)
            self.register_buffer("packed", weight.clone())
            self.weight = nn.Parameter(weight)

    narrow, wide = made(Packed, 3), made(Packed, 3, all_constants=True)
    assert torch.equal(narrow["packed"], torch.ones(4)) and not torch.equal(narrow["weight"], torch.ones(4))
    assert torch.equal(wide["packed"], wide["weight"]) and not torch.equal(wide["weight"], torch.ones(4))
    with noised_parameters(3, all_constants=True):
        assert not (numpy.ones(4) == 1).all() and (numpy.ones(4, int) == 1).all()
        assert numpy.full(2, None).tolist() == [None, None]
    assert (numpy.ones(4) == 1).all()


@pytest.mark.parametrize(
    "odd", [lambda: torch.ones(1).expand(4), lambda: torch.ones(2, device="meta"), lambda: torch.eye(2).to_sparse()]
)
def test_what_cannot_be_written_to_stays_as_it_is(odd: Callable[[], torch.Tensor]) -> None:
    with noised_parameters(3):
        assert nn.Parameter(odd()).shape == odd().shape


def test_nothing_stays_patched_whatever_happens_inside() -> None:
    before = vars(nn.Parameter)["__new__"], init._no_grad_fill_, torch.ones
    with pytest.raises(ValueError, match="made badly"), noised_parameters(3, all_constants=True):
        raise ValueError("made badly")
    assert (vars(nn.Parameter)["__new__"], init._no_grad_fill_, torch.ones) == before


@pytest.mark.parametrize("value", [1.0, -2.0, 0.0, 1e-6, -1e-6])
def test_noise_shows_at_any_usual_tolerance_and_keeps_the_sign(value: float) -> None:
    given = torch.full((1000,), value, dtype=torch.float64)
    moved = noised(given, 5) - given
    size = abs(value) if abs(value) > 0.05 else 1.0
    assert bool((moved.abs() >= NOISE / 2 * size * 0.999).all()) and bool((moved.abs() <= NOISE * size).all())
    assert value == 0 or bool((torch.sign(given + moved) == torch.sign(given)).all())
