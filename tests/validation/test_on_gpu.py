"""Inputs and comparison on the card: every dtype there, the same findings as on the host, bounded memory."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from backends.dtypes import torch_dtype
from domain.contract import Argument, IOContract, TensorInit, TensorSpec
from domain.dtype import CODES, ITEM_BYTES
from domain.fault import KernelFault
from domain.result import Status
from sandbox.protocol.arena import comparable, write
from validation.compare import comparison
from validation.compare.bitwise import identical
from validation.compare.comparison import CallComparison, compare, compare_stacked
from validation.compare.tolerance import Tolerance, requested
from validation.evidence.small_outputs import scaled_atols
from validation.evidence.weak_reference import FixedOutputs, weak_reference
from validation.inputs import poison_fill
from validation.inputs.contract_inputs import ContractInputs
from validation.inputs.distributions import DISTRIBUTIONS, Distribution
from validation.inputs.tensor_source import TensorSource
from validation.inputs.tensor_spec import KINDS, make_tensor

pytestmark = pytest.mark.gpu

NAMES = sorted(set(ITEM_BYTES) - CODES)
MIB = 1 << 20


def make(spec: TensorSpec, device: str = "cuda", fresh: int = 0) -> torch.Tensor:
    return make_tensor(spec, device=device, seed=7, position=0, fresh=fresh)


def exact(call: CallComparison) -> CallComparison:
    """Without the figures that depend on the order of float64 sums, or on hypot's last bit."""
    return replace(call, max_abs_diff=0.0, max_rel_diff=0.0, sum_abs_diff=0.0, relative_rms_error=None)


@pytest.mark.parametrize(("kind", "name"), list(itertools.product(sorted(KINDS), NAMES)))
def test_every_kind_of_every_dtype_is_made_on_the_card(kind: str, name: str) -> None:
    for fresh, shape in itertools.product(range(2), [(), (0,), (3, 50)]):
        spec = TensorSpec(shape, name, init=TensorInit(kind))
        tensor = make(spec, fresh=fresh)
        assert tensor.is_cuda
        assert (tensor.dtype, tensor.shape) == (torch_dtype(name), shape)
        assert identical(tensor, make(spec, fresh=fresh))
        if kind in ("zeros", "ones", "full", "arange", "empty"):
            assert identical(tensor.cpu(), make(spec, device="cpu"))


@pytest.mark.parametrize("name", sorted(CODES))
@pytest.mark.parametrize("strides", [None, (64, 1), (64, 2), (0, 1)])
def test_codes_are_drawn_written_and_compared_as_bytes_on_the_card(name: str, strides: tuple[int, int] | None) -> None:
    for kind in ("randn", "uniform", "ones", "empty"):
        one, other = (make(TensorSpec((3, 16), name, strides, TensorInit(kind)), fresh=fresh) for fresh in (1, 2))
        assert one.is_cuda and one.dtype is torch_dtype(name)
        assert identical(one, other) == (kind in ("ones", "empty"))
        copy = torch.empty_like(one)
        write(copy, one)
        assert comparable(copy).dtype is torch.uint8 and torch.equal(comparable(copy), comparable(one))
    source = TensorSource(TensorSpec((3, 16), name), "cuda", 7, 0, group=4, blank=True)
    assert source.stack(1, 4).shape == (4, 3, 16)


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_a_contracts_seed_is_the_cards_own_generator(name: str) -> None:
    generator = torch.Generator(device="cuda").manual_seed(42)
    expected = torch.randn((64, 3), dtype=torch_dtype(name), device="cuda", generator=generator)
    assert identical(make(TensorSpec((64, 3), name, init=TensorInit(seed=42))), expected)


@pytest.mark.parametrize("name", NAMES)
def test_the_card_finds_what_the_host_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "PIECE", 97)
    dtype = torch_dtype(name)
    expected = make(TensorSpec((13, 31), name), device="cpu")
    actual = expected.clone()
    for flat in (0, 96, 97, 200, 402):
        actual.view(-1)[flat] = 1
    if dtype.is_floating_point or dtype.is_complex:
        for flat, value in ((5, float("nan")), (6, float("inf")), (7, 3.0)):
            actual.view(-1)[flat] = value
            expected.view(-1)[flat + (flat != 7)] = value
    poison_fill.fill(actual[3, 3:4])
    for given in (actual, actual.t().contiguous().t()):
        host = compare([expected], [given], Tolerance(1e-2, 1e-2))
        card = compare([expected.cuda()], [given.cuda()], Tolerance(1e-2, 1e-2))
        assert not host.passed
        assert card.sum_abs_diff == pytest.approx(host.sum_abs_diff, rel=1e-12)
        assert card.max_abs_diff == pytest.approx(host.max_abs_diff, rel=1e-12)
        assert card.max_rel_diff == pytest.approx(host.max_rel_diff, rel=1e-12)
        assert card.relative_rms_error == pytest.approx(host.relative_rms_error, rel=1e-9)
        assert exact(card) == exact(host)


@pytest.mark.parametrize("name", NAMES)
def test_many_small_calls_are_compared_together_on_the_card(name: str) -> None:
    tensors = [make(TensorSpec((40,), name), fresh=fresh) for fresh in range(6)]
    calls = [([want], [got]) for want, got in itertools.product(tensors, tensors)]
    expected, actual = (torch.stack([tensor for (tensor,) in side]) for side in zip(*calls, strict=True))
    together = compare_stacked([expected], [actual], Tolerance(1e-2, 1e-2))
    assert [call.passed for call in together] == [want is got for (want,), (got,) in calls]
    assert [exact(call) for call in together] == [exact(compare(*call, Tolerance(1e-2, 1e-2))) for call in calls]


@pytest.mark.parametrize("name", NAMES)
def test_poison_and_trivial_answers_on_the_card(name: str) -> None:
    tensor = make(TensorSpec((64, 3), name, init=TensorInit("arange")))
    before = tensor.clone()
    assert identical(before, tensor)
    poison_fill.fill(tensor[5:6])
    assert not identical(before, tensor)
    assert poison_fill.unwritten_fraction(tensor) == pytest.approx(1 / 64)
    assert weak_reference([before], [before.clone()], Tolerance(1e-9, 1e-9)) != []
    fixed = FixedOutputs([before])
    fixed.see([before.clone()], [Tolerance(1e-9, 1e-9)], drawn=False)
    assert fixed.flag is not None and fixed.flag.data["fixed_output"] == "the output of another call"


@pytest.mark.parametrize("name", ["float32", "complex128", "int64", "uint64", "bool"])
@pytest.mark.parametrize("turned", [False, True])
def test_large_outputs_take_bounded_memory(name: str, turned: bool) -> None:
    expected = make(TensorSpec((1 << 12, 1 << 14), name))
    actual = make(TensorSpec((1 << 12, 1 << 14), name), fresh=2)
    if turned:
        actual = actual.t().contiguous().t()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    found = compare([expected], [actual], Tolerance(1e-2, 1e-2))
    assert not found.passed
    assert found.element_count == 1 << 26
    assert torch.cuda.max_memory_allocated() - held < 256 * MIB


@pytest.mark.parametrize("name", NAMES)
def test_the_size_of_answers_of_every_dtype_is_known_on_the_card(name: str) -> None:
    small = (torch.rand(64, 64, device="cuda") * 0.02).to(torch_dtype(name))
    on_host = scaled_atols([small.cpu()], requested(None, None))
    assert scaled_atols([small], requested(None, None)) == (None if on_host is None else pytest.approx(on_host))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda one: one.name)
def test_a_distribution_is_the_same_each_time_on_the_card(distribution: Distribution) -> None:
    drawn = torch.randn(64, 1000, device="cuda")
    assert torch.equal(distribution.apply(drawn, 7, 1), distribution.apply(drawn, 7, 1))


def test_what_does_not_fit_on_the_card_is_the_contracts_fault() -> None:
    io = IOContract((Argument("x", "tensor", tensor_spec=TensorSpec((1 << 42,))),))
    with pytest.raises(KernelFault, match=r"argument .x., .*does not fit in memory") as fault:
        ContractInputs(io, "cuda", 7).draw(0)
    assert fault.value.status is Status.OUT_OF_MEMORY
