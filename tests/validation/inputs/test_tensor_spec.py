"""Contract tensors: seeds, content kinds, inline data, memory layout."""

from __future__ import annotations

import base64
import itertools
import textwrap
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backends.dtypes import torch_dtype
from domain.contract import TensorData, TensorInit, TensorSpec
from domain.dtype import CODES, COMPLEX, FLOATS, INTEGERS, ITEM_BYTES
from validation.compare.bitwise import identical
from validation.inputs import poison_fill, random_content
from validation.inputs.tensor_spec import KINDS, allocate, is_random, make_tensor

NAMES = sorted(set(ITEM_BYTES) - CODES)
NATIVE = ["float64", "float32", "float16", "bfloat16"]


def make(spec: TensorSpec, secret: int | None = 7, position: int = 0, fresh: int = 0) -> torch.Tensor:
    return make_tensor(spec, device="cpu", seed=secret, position=position, fresh=fresh)


def spec(dtype: str, *shape: int, kind: str = "randn", **parameters: Any) -> TensorSpec:
    return TensorSpec(shape=shape, dtype=dtype, init=TensorInit(kind=kind, **parameters))


def inline(
    array: np.ndarray[Any, Any], dtype: str, compress: str = "none", shape: tuple[int, ...] | None = None
) -> TensorSpec:
    raw = array.tobytes()
    text = base64.b64encode(zlib.compress(raw) if compress == "zlib" else raw).decode()
    shape = array.shape if shape is None else shape
    return TensorSpec(shape=shape, dtype=dtype, data=TensorData(text, dtype, shape, compress))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (0, 3), (1, 4), (4, 1)])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_tensor_without_strides_of_its_own_has_the_usual_ones(kind: str, shape: tuple[int, ...]) -> None:
    assert make(spec("float32", *shape, kind=kind)).stride() == torch.empty(shape).stride()


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 4), (2, 0, 3)])
@pytest.mark.parametrize(("kind", "name"), list(itertools.product(sorted(KINDS), NAMES)))
def test_every_kind_of_every_dtype_is_made_and_made_again(kind: str, name: str, shape: tuple[int, ...]) -> None:
    for fresh in range(3):
        tensor = make(spec(name, *shape, kind=kind), fresh=fresh)
        assert tensor.dtype is torch_dtype(name)
        assert tensor.shape == shape
        assert tensor.is_contiguous()
        assert identical(tensor, make(spec(name, *shape, kind=kind), fresh=fresh))
        if kind != "empty":
            assert not tensor.to(torch.complex128).isnan().any()


@pytest.mark.parametrize("strides", [None, (8, 1), (8, 2), (0, 1)])
def test_scales_are_powers_of_two_about_one(strides: tuple[int, ...] | None) -> None:
    drawn = make(TensorSpec((3, 400 if strides is None else 4), "float8_e8m0fnu", strides), fresh=1)
    assert drawn.dtype is torch.float8_e8m0fnu and not identical(drawn, make(TensorSpec(drawn.shape, "float8_e8m0fnu")))
    exponents = drawn.double().log2()
    assert (exponents == exponents.round()).all() and exponents.abs().max() <= 3
    if strides is None:
        assert set(exponents.unique().tolist()) == set(range(-3, 4))
        bounded = make(spec("float8_e8m0fnu", 400, kind="uniform", low=2.0, high=8.0), fresh=2)
        assert set(bounded.double().unique().tolist()) == {2.0, 4.0, 8.0}


def test_packed_numbers_take_all_bytes() -> None:
    drawn = make(spec("float4_e2m1fn_x2", 64, 256), fresh=1)
    assert drawn.dtype is torch.float4_e2m1fn_x2 and len(drawn.view(torch.uint8).unique()) == 256


@pytest.mark.parametrize(
    ("name", "init", "byte"),
    [
        ("float8_e8m0fnu", TensorInit("ones"), 127),
        ("float8_e8m0fnu", TensorInit("full", fill_value=0.25), 125),
        ("float8_e8m0fnu", TensorInit("full", fill_value=2.0**-127), 0),
        ("float8_e8m0fnu", TensorInit("full", fill_value=2.0**127), 254),
        ("float4_e2m1fn_x2", TensorInit("zeros"), 0),
        ("float4_e2m1fn_x2", TensorInit("ones"), 0x22),
        ("float4_e2m1fn_x2", TensorInit("full", fill_value=-6), 0xFF),
        ("float4_e2m1fn_x2", TensorInit("empty"), 0xA5),
    ],
)
def test_fixed_codes(name: str, init: TensorInit, byte: int) -> None:
    assert make(TensorSpec((2, 3), name, init=init)).view(torch.uint8).eq(byte).all()


@pytest.mark.parametrize(
    ("name", "init"),
    [
        ("float8_e8m0fnu", TensorInit("zeros")),
        ("float8_e8m0fnu", TensorInit("full", fill_value=3.0)),
        ("float8_e8m0fnu", TensorInit("uniform", low=0.0)),
        ("float4_e2m1fn_x2", TensorInit("full", fill_value=5)),
    ],
)
def test_values_that_codes_lack_are_refused(name: str, init: TensorInit) -> None:
    with pytest.raises(ValueError, match=f"{name} has no"):
        make(TensorSpec((4,), name, init=init))


@pytest.mark.parametrize("name", NATIVE)
def test_the_contracts_own_seed_gives_the_numbers_of_its_generator(name: str) -> None:
    dtype = torch_dtype(name)
    normal = torch.randn((8, 3), dtype=dtype, generator=seeded(42))
    flat = torch.rand((8, 3), dtype=dtype, generator=seeded(42))
    assert identical(make(spec(name, 8, 3, seed=42)), normal)
    assert identical(make(spec(name, 8, 3, seed=42, std=0.5, mean=2.0)), normal * 0.5 + 2.0)
    assert identical(make(spec(name, 8, 3, kind="uniform", seed=42)), flat)
    assert identical(make(spec(name, 8, 3, kind="uniform", seed=42, low=-2.0, high=2.0)), flat * 4.0 - 2.0)
    for secret, position in ((1, 0), (2, 5), (None, 1)):
        assert identical(make(spec(name, 8, 3, seed=42), secret, position), normal)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("int8", -128, 127),
        ("uint8", 0, 255),
        ("int16", -(2**15), 2**15 - 1),
        ("int32", -(2**31), 2**31 - 1),
        ("int64", -(10**6), 10**6),
    ],
)
def test_integers_under_randn_are_uniform_over_their_range(name: str, low: int, high: int) -> None:
    drawn = make(spec(name, 4000, seed=3))
    assert identical(drawn, torch.randint(low, high + 1, (4000,), dtype=torch_dtype(name), generator=seeded(3)))
    assert drawn.min() < low + (high - low) // 50
    assert drawn.max() > high - (high - low) // 50


@pytest.mark.parametrize("name", sorted(INTEGERS))
def test_integer_bounds(name: str) -> None:
    inclusive = make(spec(name, 4000, kind="uniform", low=3, high=5))
    assert sorted(set(inclusive.tolist())) == [3, 4, 5]
    exclusive = make(spec(name, 4000, kind="randint", low=3, high=5))
    assert sorted(set(exclusive.tolist())) == [3, 4]
    assert sorted(set(make(spec(name, 4000, kind="uniform")).tolist())) == list(range(101))
    assert sorted(set(make(spec(name, 4000, kind="randint")).tolist())) == list(range(100))
    assert set(make(spec(name, 50, kind="uniform", low=0, high=0)).tolist()) == {0}


@pytest.mark.parametrize("name", sorted(FLOATS))
def test_what_the_original_ignored_is_honoured(name: str) -> None:
    assert make(spec(name, 64, std=0.0)).to(torch.float64).eq(0).all()
    assert make(spec(name, 64, std=0.25)).to(torch.float64).std() < 0.4
    below = make(spec(name, 64, kind="uniform", low=-0.5, high=0)).to(torch.float64)
    assert below.min() < -0.25
    assert below.max() <= 0
    assert make(spec(name, 8, kind="arange", start=1.0, step=0.0)).to(torch.float64).eq(1).all()
    assert make(spec(name, kind="arange", start=1.5)).item() == 1.5


def test_unseeded_tensors_differ_by_position_and_agree_between_kernels() -> None:
    first, second = make(spec("float32", 64), position=0), make(spec("float32", 64), position=1)
    assert not identical(first, second)
    assert identical(first, make(TensorSpec((64,), "float32"), position=0))
    assert not identical(first, make(spec("float32", 64), secret=8))


@pytest.mark.parametrize("kind", ["randn", "uniform", "randint"])
@pytest.mark.parametrize("name", NAMES)
def test_fresh_sets_differ_from_each_other_and_depend_on_the_secret(kind: str, name: str) -> None:
    tensors = [make(spec(name, 256, kind=kind, seed=1), fresh=fresh) for fresh in range(4)]
    tensors += [make(spec(name, 256, kind=kind, seed=1), secret=8, fresh=1)]
    tensors += [make(spec(name, 256, kind=kind, seed=1), position=1, fresh=1)]
    assert not any(identical(one, other) for one, other in itertools.combinations(tensors, 2))


@pytest.mark.parametrize("kind", ["zeros", "ones", "full", "arange", "empty"])
def test_fixed_content_stays_in_fresh_sets(kind: str) -> None:
    fixed = spec("int32", 3, 4, kind=kind)
    assert not is_random(fixed)
    assert identical(make(fixed), make(fixed, fresh=3))


@given(
    fresh=st.integers(1, 6),
    secret=st.integers(0, 2**62),
    name=st.sampled_from(NAMES),
    kind=st.sampled_from(["randn", "uniform", "randint"]),
    low=st.integers(0, 20),
    width=st.integers(1, 60),
)
def test_fresh_values_stay_in_the_contracts_range(
    fresh: int, secret: int, name: str, kind: str, low: int, width: int
) -> None:
    tensor = make(spec(name, 40, kind=kind, low=low, high=low + width), secret=secret, fresh=fresh)
    if kind == "randn" or name == "bool":
        return
    parts = torch.view_as_real(tensor) if name in COMPLEX else tensor
    values = parts.to(torch.float64)
    rounded = torch.tensor([low, low + width], dtype=torch.float64).to(parts.dtype).to(torch.float64)
    assert values.min() >= rounded[0]
    assert values.max() <= rounded[1]


@pytest.mark.parametrize("name", ["float64", "float32"])
def test_odd_sets_are_skewed_without_leaving_the_range(name: str) -> None:
    def spread(fresh: int, kind: str) -> float:
        parts = make(spec(name, 80_000, kind=kind), fresh=fresh).reshape(20, -1).mean(dim=1)
        return float(parts.max() - parts.min())

    assert spread(2, "randn") < 0.2 < 0.7 < spread(1, "randn")
    assert spread(2, "uniform") < 0.05 < 0.2 < spread(1, "uniform")
    assert make(spec(name, 80_000, kind="uniform"), fresh=1).max() < 1.0


def test_arange_runs_along_the_last_dimension() -> None:
    assert make(spec("float32", 2, 3, kind="arange", start=1, step=0.5)).tolist() == [[1, 1.5, 2]] * 2
    assert make(spec("int64", 3, kind="arange", start=2**60, step=-1)).tolist() == [2**60, 2**60 - 1, 2**60 - 2]
    assert make(spec("uint64", 2, kind="arange", start=2**64 - 1, step=-1)).tolist() == [2**64 - 1, 2**64 - 2]
    assert make(spec("bool", 3, kind="arange")).tolist() == [False, True, True]
    assert make(spec("int32", 4, kind="arange", step=0.5)).tolist() == [0, 0, 1, 1]


def test_full_is_exact() -> None:
    assert make(spec("int64", 2, kind="full", fill_value=2**63 - 1)).tolist() == [2**63 - 1] * 2
    assert make(spec("uint64", 2, kind="full", fill_value=2**64 - 1)).tolist() == [2**64 - 1] * 2
    assert make(spec("int8", 2, kind="full", fill_value=3.0)).tolist() == [3, 3]
    assert make(spec("bool", 2, kind="full", fill_value=True)).tolist() == [True, True]
    assert make(spec("float32", 2, kind="full")).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (spec("int8", 2, kind="full", fill_value=300), "300 is outside int8"),
        (spec("uint16", 2, kind="full", fill_value=-1), "-1 is outside uint16"),
        (spec("int32", 2, kind="full", fill_value=2.5), "fill_value 2.5 is not a whole number"),
        (spec("float16", 2, kind="full", fill_value=1e9), "does not fit float16"),
        (spec("int8", 2, kind="uniform", low=0, high=200), "200 is outside int8"),
        (spec("int32", 2, kind="randint", low=0.5), "low 0.5 is not a whole number"),
        (spec("int64", 2, kind="uniform", low=0, high=2**63 - 1), "random integers lie between"),
        (spec("int8", 300, kind="arange"), "299 is outside int8"),
        (TensorSpec((2,), "float31"), "unknown dtype"),
        (TensorSpec((2, 2), strides=(1, 1)), "may put two elements"),
        (TensorSpec((2, 2), strides=(1, 0), init=TensorInit("arange")), "varies along a dimension of stride 0"),
    ],
)
def test_specs_that_contradict_themselves_are_refused(wrong: TensorSpec, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(wrong)


@pytest.mark.parametrize("compress", ["none", "zlib"])
@pytest.mark.parametrize("shape", [(), (0,), (6,), (2, 3, 1, 4)])
@pytest.mark.parametrize("name", NAMES)
def test_inline_data_round_trips(name: str, shape: tuple[int, ...], compress: str) -> None:
    rng = np.random.default_rng(0)
    count = int(np.prod(shape)) * ITEM_BYTES[name]
    raw = rng.integers(0, 2 if name == "bool" else 256, count).astype(np.uint8)
    tensor = make(inline(raw, name, compress, shape), fresh=2)
    assert tensor.dtype is torch_dtype(name)
    assert tensor.shape == shape
    assert tensor.reshape(-1).view(torch.uint8).numpy().tobytes() == raw.tobytes()


def test_inline_data_of_known_bits() -> None:
    assert make(inline(np.array([0x3F80, 0xC000], np.uint16), "bfloat16")).tolist() == [1.0, -2.0]
    assert make(inline(np.array([0x38, 0xC0], np.uint8), "float8_e4m3fn")).float().tolist() == [1.0, -2.0]
    assert make(inline(np.array([0, 1, 7], np.uint8), "bool")).view(torch.uint8).tolist() == [0, 1, 1]
    wrapped = inline(np.arange(64.0), "float64")
    assert wrapped.data is not None
    lines = "\n".join(textwrap.wrap(wrapped.data.data_b64, 76))
    assert make(TensorSpec((64,), "float64", data=TensorData(lines, "float64", (64,)))).tolist() == list(range(64))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("strides", [(1, 3), (8, 2), (4, 1), (0, 1), (1, 0), (0, 0)])
def test_strides_are_kept_and_the_gaps_are_poison(name: str, strides: tuple[int, int]) -> None:
    laid = TensorSpec((3, 4), name, strides=strides, init=TensorInit("ones"))
    tensor = make(laid)
    assert tensor.stride() == strides
    assert tensor.to(torch.complex128).eq(1).all()
    memory = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    held = 12 if 0 not in strides else {(0, 1): 4, (1, 0): 3, (0, 0): 1}[strides]
    assert round(poison_fill.unwritten_fraction(memory) * memory.numel()) == memory.numel() - held


def test_a_transposed_tensor_has_the_values_of_its_plain_twin() -> None:
    laid = TensorSpec((3, 4), strides=(1, 3), init=TensorInit(seed=5))
    assert identical(make(laid), make(spec("float32", 3, 4, seed=5)))


def test_allocated_memory_is_poison() -> None:
    assert poison_fill.unwritten_fraction(allocate(TensorSpec((3, 4), "float16"), "cpu")) == 1.0
    assert poison_fill.unwritten_fraction(make(spec("int64", 5, kind="empty"))) == 1.0


@pytest.mark.parametrize(("kind", "name"), list(itertools.product(["randn", "uniform", "randint"], NAMES)))
def test_a_tensor_of_many_pieces_is_drawn_and_skewed_alike(
    kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, bounds = spec(name, 50, 40, kind=kind), []
    for piece in (random_content.PIECE, 301):
        monkeypatch.setattr(random_content, "PIECE", piece)
        drawn = [make(given, fresh=fresh) for fresh in (1, 2)]
        assert identical(drawn[0], make(given, fresh=1)) and drawn[0].dtype is torch_dtype(name)
        wide = [each.to(torch.complex128 if each.is_complex() else torch.float64).real for each in drawn]
        assert wide[0].mean() > wide[1].mean(), "the first is skewed"
        assert len(wide[1].reshape(-1)[-100:].unique()) > 1, "the last piece too"
        bounds.append([float(each.amin()) for each in wide] + [float(each.amax()) for each in wide])
    one, other = bounds
    assert other == pytest.approx(one, rel=1.0, abs=3.0)
