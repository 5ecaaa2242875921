"""Where a source's makers run: on the device where that works, else on the host, whose error is told."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import torch

from backends.base import Target
from backends.python.base import PythonExecutable
from backends.source.default_device import DefaultDevice, keeps_other_tensors
from backends.source.rng_state import drew_on_host, seed_everything
from domain.fault import KernelFault
from domain.inputs import DrawOn
from tests.backends.loading import CPU, SEED, kernel, loaded

CARD = Target("cuda:0", "sm_90")
CARDS_HOST = Target("cuda:0", "sm_90", draw_on=DrawOn.HOST)
LINEAR = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
    def forward(self, x):
        return self.linear(x)
def get_inputs():
    return [torch.rand(4, 8)]
"""


@pytest.mark.parametrize("target", [CPU, Target("cpu", None, draw_on=DrawOn.HOST), CARDS_HOST])
def test_on_the_host_a_maker_runs_once_without_a_default_device(target: Target) -> None:
    devices = []
    chosen = DefaultDevice(target)
    assert chosen.run(lambda: devices.append(torch.get_default_device()) or 7, suits=lambda made: False) == 7
    assert devices == [torch.device("cpu")] and chosen.used is DrawOn.HOST


def failing_first(error: Exception) -> tuple[Callable[[], str], list[torch.device]]:
    """A maker that fails where the default device is the card, and where it ran."""
    ran: list[torch.device] = []

    def make() -> str:
        ran.append(torch.get_default_device())
        if ran[-1].type != "cpu":
            raise error
        return "made"

    return make, ran


def test_a_maker_that_fails_on_the_device_runs_on_the_host_and_later_ones_at_once() -> None:
    make, ran = failing_first(TypeError("can't convert cuda:0 device type tensor to numpy"))
    chosen = DefaultDevice(CARD)
    assert [chosen.run(make), chosen.run(make)] == ["made", "made"]
    assert [device.type for device in ran] == ["cuda", "cpu", "cpu"] and chosen.used is DrawOn.HOST


def test_what_does_not_suit_on_the_device_is_made_on_the_host() -> None:
    chosen, made = DefaultDevice(CARD), []
    found = chosen.run(lambda: made.append(None) or torch.get_default_device(), suits=lambda device: False)
    assert found.type == "cpu" and len(made) == 2 and chosen.used is DrawOn.HOST
    chosen = DefaultDevice(CARD)
    assert chosen.run(torch.get_default_device).type == "cuda" and chosen.used is DrawOn.DEVICE


def test_what_does_not_suit_is_gone_before_the_host_makes_another() -> None:
    made: list[weakref.ref[Holder]] = []

    def make() -> Holder:
        assert not any(earlier() for earlier in made), "a large model would be on the device twice"
        holder = Holder(None)
        holder.kept = holder
        made.append(weakref.ref(holder))
        return holder

    DefaultDevice(CARD).run(make, suits=lambda holder: False)
    assert len(made) == 2


def test_the_hosts_error_is_told_and_a_final_one_at_once() -> None:
    def make() -> None:
        raise ValueError(torch.get_default_device().type)

    with pytest.raises(ValueError, match="cpu") as told:
        DefaultDevice(CARD).run(make)
    assert told.value.__context__ is None
    with pytest.raises(ValueError, match="cuda"):
        DefaultDevice(CARD).run(make, is_final=lambda error: True)


def test_a_source_may_set_its_own_default_device_meanwhile() -> None:
    try:
        assert DefaultDevice(CARD).run(lambda: torch.set_default_device("meta") or torch.rand(2)).device.type == "meta"
        assert torch.get_default_device().type == torch.rand(2).device.type == "meta", "it stays"
        assert DefaultDevice(CARD).run(torch.get_default_device).type == "cuda"
        assert torch.get_default_device().type == "meta", "it comes back"
    finally:
        torch.set_default_device(None)
    assert torch.get_default_device().type == torch.rand(2).device.type == "cpu"


class Holder:
    def __init__(self, kept: Any) -> None:
        self.kept = kept


def held_in(**attributes: Any) -> torch.nn.Module:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2, device="meta"))
    module[0].register_buffer("mask", torch.zeros(2, device="meta"))
    for name, value in attributes.items():
        setattr(module[0], name, value)
    return module


def test_tensors_beside_parameters_and_buffers_are_found() -> None:
    there = torch.zeros(1, device="meta")  # As on a card, `to` would not bring it there.
    for value in (there, [there], {"a": (1, there)}, Holder([there])):
        assert keeps_other_tensors(held_in(kept=value))
        assert keeps_other_tensors(Holder(value)), "no module"
    recursive: list[Any] = [1]
    recursive.append(recursive)
    for value in (None, torch.zeros(1), [torch.zeros(1)], recursive, torch, torch.rand):
        assert not keeps_other_tensors(held_in(kept=value))


def test_numbers_of_the_hosts_generator_are_noticed() -> None:
    seed_everything(SEED)
    with torch.device("meta"):
        torch.nn.Linear(8, 8)
    assert not drew_on_host()
    with torch.device("meta"):
        torch.nn.init.kaiming_uniform_(torch.Tensor(8, 8))
    assert drew_on_host(), "torch.Tensor is on the host whatever the default device"
    torch.manual_seed(7)
    assert not drew_on_host(), "a constructor may seed"


def test_on_the_cpu_nothing_changes(tmp_path: Path) -> None:
    executable = loaded(kernel(LINEAR), tmp_path)
    assert (executable.constructed_on, executable.drawn_on) == (DrawOn.HOST, DrawOn.HOST)
    seed_everything(SEED)
    assert torch.equal(executable.state()["linear.weight"], torch.nn.Linear(8, 8).weight)
    seed_everything(5)
    expected = torch.rand(4, 8)
    made = executable.own_inputs(5)
    assert made is not None and torch.equal(made[0], expected)
    assert executable.drawn_on is DrawOn.HOST
    function = loaded(kernel("def kernel_fn(x):\n    return x"), tmp_path)
    assert function.constructed_on is None


@pytest.mark.gpu
def test_equal_layers_have_equal_weights_on_the_card(tmp_path: Path) -> None:
    one, other = (loaded(kernel(source), tmp_path, CARD) for source in (LINEAR, LINEAR.replace("linear", "dense")))
    assert one.constructed_on is other.constructed_on is DrawOn.DEVICE
    assert torch.equal(one.state()["linear.weight"], other.state()["dense.weight"])
    assert one.state()["linear.weight"].is_cuda
    host = loaded(kernel(LINEAR), tmp_path, CARDS_HOST)
    assert host.constructed_on is DrawOn.HOST and host.state()["linear.weight"].is_cuda
    seed_everything(SEED)
    assert torch.equal(host.state()["linear.weight"].cpu(), torch.nn.Linear(8, 8).weight)


@pytest.mark.gpu
def test_four_gibibytes_are_drawn_in_half_a_second(tmp_path: Path) -> None:
    source = "def kernel_fn(x):\n    return x\ndef get_inputs():\n    return [torch.rand(1 << 30)]"
    executable = loaded(kernel(source), tmp_path, CARD)
    assert executable.own_inputs(1) is not None  # The allocator has the memory now.
    torch.cuda.synchronize()
    began = monotonic()
    made = executable.own_inputs(2)
    torch.cuda.synchronize()
    assert monotonic() - began < 0.5
    assert made is not None and made[0].is_cuda and executable.drawn_on is DrawOn.DEVICE
    again = executable.own_inputs(2)
    assert again is not None and torch.equal(made[0][: 1 << 20], again[0][: 1 << 20])


NEED_THE_HOST = {
    "numpy of a tensor": "torch.from_numpy(np.sort(torch.rand(64).numpy()))",
    "a host generator": "torch.rand(64, generator=torch.Generator().manual_seed(1))",
    "pinned memory": "torch.rand(64).pin_memory()",
    "an explicit host tensor": "torch.rand(64) + torch.ones(64, device='cpu')",
}


@pytest.mark.gpu
@pytest.mark.parametrize("expression", NEED_THE_HOST.values(), ids=NEED_THE_HOST)
def test_a_source_that_needs_the_host_draws_there(expression: str, tmp_path: Path) -> None:
    source = f"import numpy as np\ndef kernel_fn(x):\n    return x\ndef get_inputs():\n    return [{expression}]"
    executable = loaded(kernel(source), tmp_path, CARD)
    made = executable.own_inputs(3)
    assert made is not None and made[0].is_cuda and executable.drawn_on is DrawOn.HOST
    on_host = loaded(kernel(source), tmp_path, CARDS_HOST).own_inputs(3)
    assert on_host is not None and torch.equal(made[0], on_host[0])


@pytest.mark.gpu
@pytest.mark.parametrize("line", ["np.random.rand(64).astype('float32')", "np.arange(64, dtype='float32')"])
def test_numpys_own_numbers_are_copied(line: str, tmp_path: Path) -> None:
    source = (
        "import numpy as np\ndef kernel_fn(x, y):\n    return x + y\n"
        f"def get_inputs():\n    return [torch.from_numpy({line}), torch.rand(64)]"
    )
    executable = loaded(kernel(source), tmp_path, CARD)
    made = executable.own_inputs(3)
    assert made is not None and all(each.is_cuda for each in made) and executable.drawn_on is DrawOn.DEVICE


@pytest.mark.gpu
def test_the_hosts_error_of_get_inputs_is_told(tmp_path: Path) -> None:
    source = (
        "def kernel_fn(x):\n    return x\n"
        "def get_inputs():\n    raise ValueError(f'made on {torch.get_default_device().type}')"
    )
    with pytest.raises(KernelFault, match="made on cpu"):
        loaded(kernel(source), tmp_path, CARD).own_inputs(3)


@pytest.mark.gpu
def test_lengths_that_a_constructor_keeps_stay_on_the_host(tmp_path: Path) -> None:
    source = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.lengths = torch.tensor([3, 2])
            self.linear = nn.Linear(4, 4)
        def forward(self, x):
            packed = nn.utils.rnn.pack_padded_sequence(self.linear(x), self.lengths, batch_first=True)
            return packed.data
    """
    executable = loaded(kernel(source), tmp_path, CARD)
    assert isinstance(executable, PythonExecutable) and executable.constructed_on is DrawOn.HOST
    assert executable.call([torch.rand(2, 3, 4, device="cuda")]).shape == (5, 4)
