"""The comparison against an oracle, and against planted mistakes: a checker has to be seen catching things."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.dtypes import torch_dtype
from domain.dtype import CODES, COMPLEX, FLOATS, INTEGERS, ITEM_BYTES
from domain.result import Comparison
from tests.validation import oracle
from validation.compare import comparison
from validation.compare.bitwise import differing, identical
from validation.compare.comparison import CallComparison, compare, compare_stacked
from validation.compare.element_errors import measure_rows
from validation.compare.result import Aggregator, merge_comparisons
from validation.compare.tolerance import Tolerance, requested
from validation.inputs.poison_fill import fill

NAMES = sorted(set(ITEM_BYTES) - CODES)  # Codes are compared as bytes: see `comparable`.
NAN, INF = math.nan, math.inf
SPECIAL = [0.0, -0.0, 1.0, -1.0, NAN, INF, -INF, 1e-320, 1e308, -1e308, 65504.0, 1e-7]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> int:
    """The same code with many pieces on small tensors; the size of one."""
    monkeypatch.setattr(comparison, "PIECE", 7)
    return 7


def merge(calls: list[CallComparison]) -> Comparison:
    """As a job's calls become its comparison."""
    tally = Aggregator()
    tally.add(calls)
    return tally.comparison


def together(calls: list[tuple[list[torch.Tensor], list[torch.Tensor]]], tolerance: Tolerance) -> list[CallComparison]:
    """The calls' (expected, actual) outputs, compared as a window's."""
    expected, actual = (
        [torch.stack(output) for output in zip(*side, strict=True)] for side in zip(*calls, strict=True)
    )
    return compare_stacked(expected, actual, tolerance)


def one(expected: torch.Tensor, actual: torch.Tensor, atol: float = 1e-2, rtol: float = 1e-2) -> CallComparison:
    result = compare([expected], [actual], Tolerance(atol, rtol))
    json.dumps(asdict(merge([result])), allow_nan=False)
    return result


def agrees(found: CallComparison, verdict: oracle.Verdict, shape: tuple[int, ...]) -> None:
    assert found.passed == (verdict.mismatches == 0)
    assert found.mismatch_count == verdict.mismatches
    assert found.max_abs_diff == pytest.approx(min(verdict.max_abs, np.finfo(np.float64).max), rel=1e-12)
    assert found.max_rel_diff == pytest.approx(min(verdict.max_rel, np.finfo(np.float64).max), rel=1e-12)
    assert found.sum_abs_diff == pytest.approx(min(verdict.sum_abs, np.finfo(np.float64).max), rel=1e-12)
    if verdict.first is None:
        assert found.first_mismatch is None
    else:
        assert found.first_mismatch is not None
        assert found.first_mismatch["index"] == [int(i) for i in np.unravel_index(verdict.first, shape)]


values = st.floats(width=64) | st.sampled_from(SPECIAL) | st.floats(-2, 2)
nudges = st.sampled_from([0.0, 0.0, 0.0, 1e-9, 1e-5, 0.005, 0.02, 1.0, NAN, INF])
tolerances = st.sampled_from([0.0, 1e-7, 1e-5, 1e-2, 0.5])


@settings(max_examples=300)
@given(
    pairs=st.lists(st.tuples(values, nudges), min_size=1, max_size=24),
    name=st.sampled_from(sorted(FLOATS)),
    atol=tolerances,
    rtol=tolerances,
    strided=st.booleans(),
)
def test_floats_agree_with_the_oracle(
    pairs: list[tuple[float, float]], name: str, atol: float, rtol: float, strided: bool
) -> None:
    dtype = torch_dtype(name)
    expected = torch.tensor([want for want, _ in pairs], dtype=torch.float64).to(dtype)
    actual = (torch.tensor([want + nudge for want, nudge in pairs], dtype=torch.float64)).to(dtype)
    with np.errstate(over="ignore"):
        verdict = oracle.floating(expected.double().numpy(), actual.double().numpy(), atol, rtol)
    if strided:
        memory = torch.zeros(2 * len(pairs), dtype=dtype)
        memory[::2] = actual
        actual = memory[::2]
    agrees(one(expected, actual, atol, rtol), verdict, (len(pairs),))


@settings(max_examples=150)
@given(
    pairs=st.lists(st.tuples(values, values, nudges, nudges), min_size=1, max_size=12),
    name=st.sampled_from(sorted(COMPLEX)),
    atol=tolerances,
    rtol=tolerances,
)
def test_complex_numbers_agree_with_the_oracle(
    pairs: list[tuple[float, float, float, float]], name: str, atol: float, rtol: float
) -> None:
    dtype = torch_dtype(name)
    # Sizes whose squares stay finite: Python's abs of a complex raises where hypot gives infinity.
    keep = [
        tuple(v if not math.isfinite(v) else max(min(v, 1e150), -1e150) for v in pair[:2]) + pair[2:] for pair in pairs
    ]
    expected = torch.tensor([complex(a, b) for a, b, _, _ in keep], dtype=torch.complex128).to(dtype)
    actual = torch.tensor([complex(a + c, b + d) for a, b, c, d in keep], dtype=torch.complex128).to(dtype)
    wide = [t.to(torch.complex128).numpy() for t in (expected, actual)]
    agrees(one(expected, actual, atol, rtol), oracle.floating(wide[0], wide[1], atol, rtol), (len(pairs),))


@settings(max_examples=200)
@given(data=st.data(), name=st.sampled_from(sorted(INTEGERS)))
def test_integers_are_exact_at_any_size_and_tolerance(data: st.DataObject, name: str) -> None:
    dtype = torch_dtype(name)
    info = torch.iinfo(dtype)
    whole = st.integers(info.min, info.max) | st.sampled_from([info.min, info.max, info.max - 1])
    expected = data.draw(st.lists(whole, min_size=1, max_size=12))
    actual = [data.draw(st.sampled_from([want, want, max(want - 1, info.min)]) | whole) for want in expected]
    found = one(
        torch.tensor(expected, dtype=torch_dtype(name)), torch.tensor(actual, dtype=torch_dtype(name)), 10.0, 1.0
    )
    agrees(found, oracle.integral(expected, actual), (len(expected),))


@pytest.mark.parametrize("name", NAMES)
def test_one_wrong_element_is_found_wherever_it_is(name: str, small_pieces: int) -> None:
    shape = (3, 5, 4)
    dtype = torch_dtype(name)
    expected = torch.ones(shape, dtype=dtype)
    for flat in range(expected.numel()):
        for strided in (False, True):
            actual = expected.clone()
            actual.view(-1)[flat] = 0
            given = actual.transpose(0, 2).contiguous().transpose(0, 2) if strided else actual
            found = one(expected, given)
            assert not found.passed
            assert found.mismatch_count == found.strict_mismatch_count == 1
            assert found.first_mismatch is not None
            assert found.first_mismatch["index"] == [int(i) for i in np.unravel_index(flat, shape)]
            assert found.max_abs_diff == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_unwritten_elements_are_wrong_in_every_dtype(name: str, small_pieces: int) -> None:
    expected = torch.ones(12, 5, dtype=torch_dtype(name))
    turned = torch.ones(5, 12, dtype=torch_dtype(name)).t()  # Which is copied to be measured.
    for flat, like in itertools.product((0, 6, 7, 13, 59), (expected, turned)):
        actual = like.clone()
        fill(actual[flat // 5, flat % 5 :][:1])
        found = one(expected, actual, 1e30, 1e30)
        assert found.mismatch_count == 1
        assert found.first_mismatch is not None
        assert found.first_mismatch["index"] == [flat // 5, flat % 5]
        json.dumps(found.first_mismatch, allow_nan=False)


@pytest.mark.parametrize(
    ("want", "got", "right"),
    [
        (NAN, NAN, True),
        (INF, INF, True),
        (-INF, -INF, True),
        (0.0, -0.0, True),
        (INF, -INF, False),
        (-INF, INF, False),
        (INF, NAN, False),
        (NAN, INF, False),
        (NAN, 0.0, False),
        (0.0, NAN, False),
        (INF, 1e30, False),
        (1e30, INF, False),
    ],
)
@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16", "complex64", "complex128"])
def test_what_is_not_finite_has_to_match(want: float, got: float, right: bool, name: str) -> None:
    dtype = torch_dtype(name)
    beside = torch.tensor([1.0, 2.0, 3.0], dtype=dtype)
    expected, actual = beside.clone(), beside.clone()
    expected[1], actual[1] = want, got
    actual[2] += 0.01  # Keeps the fast path out.
    found = one(expected, actual, 1e38, 1e38)
    assert found.passed is right
    assert found.nonfinite_count == (0 if right else 1)
    if not right:
        assert "1 are NaN or infinite on one side only" in (merge([found]).message or "")


def test_poison_does_not_match_a_small_difference_elsewhere() -> None:
    expected = torch.full((8,), NAN)
    actual = expected.clone()
    actual[3] = 1.0
    assert one(expected, actual).mismatch_count == 1


@pytest.mark.parametrize(
    ("expected", "actual", "words"),
    [
        ([torch.zeros(2, 3)], [torch.zeros(3, 2)], ["shape", "[2, 3]", "[3, 2]"]),
        ([torch.zeros(2, 3)], [torch.zeros(6)], ["shape", "[2, 3]", "[6]"]),
        ([torch.zeros(1)], [torch.zeros(())], ["shape", "[1]", "[]"]),
        ([torch.zeros(0, 3)], [torch.zeros(0, 4)], ["shape"]),
        ([torch.zeros(2)], [torch.zeros(2).half()], ["dtype", "float32", "float16"]),
        ([torch.zeros(2).bfloat16()], [torch.zeros(2).half()], ["dtype", "bfloat16", "float16"]),
        ([torch.zeros(2).int()], [torch.zeros(2).long()], ["dtype", "int32", "int64"]),
        ([torch.zeros(2)], [torch.zeros(2, device="meta")], ["device", "cpu", "meta"]),
        ([torch.zeros(2), torch.zeros(2)], [torch.zeros(2)], ["2 output", "kernel 1"]),
        ([torch.zeros(2)], [], ["1 output", "kernel 0"]),
        ([], [], ["no outputs to compare"]),
    ],
)
def test_outputs_of_another_form_are_wrong(
    expected: list[torch.Tensor], actual: list[torch.Tensor], words: list[str]
) -> None:
    call = compare(expected, actual, Tolerance(1e30, 1e30))
    result = merge([call])
    assert not call.passed
    assert not result.passed
    assert result.strict is not None
    assert result.strict["passed"] is False
    assert all(word in (result.message or "") for word in words), result.message
    assert result.mismatch_count == result.element_count == sum(tensor.numel() for tensor in expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (5,)])
def test_equal_outputs_pass_at_no_tolerance(name: str, shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape, dtype=torch_dtype(name))
    result = merge([one(tensor, tensor.clone(), 0.0, 0.0)])
    assert result.passed
    assert result.message is None
    assert result.first_mismatch is None
    assert result.element_count == tensor.numel()
    assert result.strict is not None
    assert result.strict["passed"]


def test_scalars_of_zero_dimensions_compare() -> None:
    found = one(torch.tensor(1.0), torch.tensor(2.0))
    assert found.first_mismatch == {"output": 0, "index": [], "expected": 1.0, "actual": 2.0}


def test_the_wrong_output_is_named() -> None:
    right, wrong = torch.zeros(4), torch.tensor([0.0, 0.0, 3.0, 0.0])
    call = compare([right, right], [right.clone(), wrong], Tolerance(1e-2, 1e-2))
    assert call.first_mismatch == {"output": 1, "index": [2], "expected": 0.0, "actual": 3.0}
    assert call.element_count == 8


def test_default_tolerance_passes_what_the_strict_one_does_not() -> None:
    expected = torch.randn(1000)
    result = merge([one(expected, expected + 0.005)])
    assert result.passed
    assert result.strict == {
        "passed": False,
        "atol": 1e-5,
        "rtol": 1.3e-6,
        "mismatch_count": 1000,
        "relative_rms_error": pytest.approx(0.005 / float(expected.square().mean().sqrt()), rel=1e-3),
    }


def test_the_message_has_the_numbers_and_the_tolerance() -> None:
    expected = torch.zeros(2, 4)
    actual = expected.clone()
    actual[1, 2] = 0.5
    calls = [one(expected, actual, 1e-5, 1e-5), one(expected, expected.clone(), 1e-5, 1e-5)]
    result = merge(calls)
    assert result.message == (
        "Outputs are out of tolerance: 1 of 16 elements of 2 calls (calls passed 1/2), max difference 5.000000e-01, "
        "avg difference 3.125000e-02, atol=1e-05, rtol=1e-05; first at output 0, index [1, 2]: expected 0.0, got 0.5"
    )
    assert (result.calls, result.calls_passed, result.passed) == (2, 1, False)
    assert result.mean_abs_diff == 0.5 / 16


def test_where_all_that_is_wrong_is_not_finite_no_difference_is_told() -> None:
    expected = torch.zeros(8)
    actual = expected.clone()
    actual[7] = torch.nan
    told = merge([one(expected, actual, 1e-5, 1e-5)]).message
    assert told == (
        "Outputs are out of tolerance: 1 of 8 elements (calls passed 0/1), atol=1e-05, rtol=1e-05; "
        "1 are NaN or infinite on one side only; first at output 0, index [7]: expected 0.0, got nan"
    )


def test_one_wrong_call_among_many_fails_the_job() -> None:
    right = compare([torch.ones(3)], [torch.ones(3)], Tolerance(0, 0))
    wrong = compare([torch.ones(3)], [torch.zeros(3)], Tolerance(0, 0))
    for place in range(5):
        calls = [right] * 5
        calls[place] = wrong
        assert not merge(calls).passed
    assert merge([right] * 5).passed
    with pytest.raises(ValueError, match="no call"):
        merge([])


def test_counts_and_extremes_are_over_every_output_of_every_call() -> None:
    zeros = [torch.zeros(3), torch.zeros(5)]
    first = [torch.tensor([0.0, 2.0, 0.0]), torch.tensor([1.0, 0.0, 0.0, 0.0, INF])]
    second = [torch.tensor([0.0, 0.0, 4.0]), torch.zeros(5)]
    result = merge(together([(zeros, zeros), (zeros, first), (zeros, second)], Tolerance(1e-2, 1e-2)))
    assert (result.calls, result.calls_passed) == (3, 1)
    assert (result.mismatch_count, result.element_count) == (4, 24)
    assert (result.max_abs_diff, result.mean_abs_diff) == (4.0, 7.0 / 24)
    assert result.first_mismatch == {"output": 0, "index": [1], "expected": 0.0, "actual": 2.0}
    assert "1 are NaN or infinite" in (result.message or "")
    assert result.strict is not None
    assert result.strict["mismatch_count"] == 4


@pytest.mark.parametrize("name", [*sorted(INTEGERS), "bool"])
def test_integers_are_exact_in_calls_compared_together(name: str) -> None:
    ones = torch.ones(4, dtype=torch_dtype(name))
    off = ones.clone()
    off[2] = 0
    found = together([([ones], [ones]), ([ones], [off])], Tolerance(10.0, 10.0))
    assert [call.passed for call in found] == [True, False]


def test_results_stay_finite_at_the_edge_of_float64() -> None:
    expected = torch.tensor([1e308, -1e308, 5e-324, 1.0], dtype=torch.float64)
    actual = torch.tensor([-1e308, 1e308, 1e308, INF], dtype=torch.float64)
    result = merge([one(expected, actual)])
    assert result.max_abs_diff == result.max_rel_diff == np.finfo(np.float64).max
    assert result.mismatch_count == 4


def test_gradients_and_lazy_conjugates_compare() -> None:
    weights = torch.randn(4, requires_grad=True)
    assert one(weights, (weights * 1.0001)).passed
    waves = torch.randn(4, dtype=torch.complex64)
    assert one(waves.conj(), waves.conj().resolve_conj()).passed
    assert not one(waves.conj(), waves, 1e-6, 1e-6).passed


def test_a_task_of_many_pieces_counts_every_element_once(small_pieces: int) -> None:
    rng = np.random.default_rng(0)
    expected = torch.from_numpy(rng.normal(size=(9, 11, 5)))
    actual = expected + torch.from_numpy(rng.normal(size=(9, 11, 5))) * 0.02
    flat = [tensor.reshape(-1).numpy() for tensor in (expected, actual)]
    agrees(one(expected, actual), oracle.floating(flat[0], flat[1], 1e-2, 1e-2), (9, 11, 5))


def close(one: CallComparison, other: CallComparison) -> bool:
    """Equal but for the order of float64 sums."""
    floats = ("max_abs_diff", "max_rel_diff", "sum_abs_diff", "relative_rms_error")
    pairs = [(getattr(one, name), getattr(other, name)) for name in floats]
    alike = all(a is b is None or a == pytest.approx(b, rel=1e-12) for a, b in pairs)
    return alike and replace(one, **{name: getattr(other, name) for name in floats}) == other


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("limit", [1, 13, 40, 1000])
def test_a_shared_look_for_equal_bits_is_as_one_at_each(name: str, limit: int) -> None:
    dtype = torch_dtype(name)
    for shape in ((), (4, 3), (0, 2), (1, 50)):
        one = torch.zeros(7, *shape, dtype=dtype)
        other = one.clone()
        for row in (0, 2, 3):
            fill(other[row].view(-1)[-1:])
        turned = other.movedim(0, -1).contiguous().movedim(-1, 0)
        for laid_out in (one.clone(), other, turned, other[:1].expand(other.shape)):
            found = differing(one, laid_out, limit).tolist()
            assert found == [not identical(*pair) for pair in zip(one, laid_out, strict=True)]


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dense": lambda stack: stack,
    "far apart": lambda stack: torch.cat([stack, stack], dim=1)[:, : stack.shape[1]],
    "turned": lambda stack: stack.transpose(1, 2).contiguous().transpose(1, 2),
    "calls inside": lambda stack: stack.movedim(0, -1).contiguous().movedim(-1, 0),
    "one row": lambda stack: stack[:, :1].expand(stack.shape),
    "one call": lambda stack: stack[:1].expand(stack.shape),
}


def laid_out(layout: str, stack: torch.Tensor) -> torch.Tensor:
    """With the same bits: a copy of bools would make poison true."""
    is_bool = stack.dtype is torch.bool
    found = LAYOUTS[layout](stack.view(torch.uint8) if is_bool else stack)
    return found.view(stack.dtype) if is_bool else found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("piece", [30, 300])
def test_calls_compared_together_are_as_compared_alone(
    name: str, layout: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "PIECE", piece)  # The largest outputs take two or four; or several go together.
    monkeypatch.setattr(comparison, "CPU_BATCH", piece)
    dtype = torch_dtype(name)
    rng = np.random.default_rng(1)
    tolerance = Tolerance(1e-2, 1e-2)

    def outputs(calls: int) -> list[torch.Tensor]:
        shapes = (1, 3), (9, 5), (2, 0), (2, 1)
        return [torch.from_numpy(rng.integers(0, 2, (calls, *shape))).to(dtype) for shape in shapes]

    for calls, wrong in [(1, ()), (1, (0,)), (5, (0,)), (30, (0, 1, 7, 29)), (30, (13,)), (30, range(30)), (30, ())]:
        expected = outputs(calls)
        actual, others = [stack.clone() for stack in expected], outputs(calls)
        for call in wrong:
            output = (0, 1, 3)[call % 3]
            actual[output][call] = others[output][call]  # Bits that may be the same, and one that is not.
            fill(actual[output][call].view(-1)[call % 2 :][:1])
        if dtype.is_floating_point or dtype.is_complex:
            for stacks in (expected, actual):
                stacks[1].view(-1)[::7] = NAN
                stacks[1].view(-1)[::11] = INF
        want, got = ([laid_out(layout, stack) for stack in stacks] for stacks in (expected, actual))
        found = compare_stacked(want, got, tolerance)
        alone = [compare([s[call] for s in want], [s[call] for s in got], tolerance) for call in range(calls)]
        assert len(found) == calls
        assert all(close(*pair) for pair in zip(found, alone, strict=True))
        if layout not in ("one row", "one call"):
            assert {call for call in range(calls) if not found[call].passed} == set(wrong)


@pytest.mark.parametrize("name", sorted(FLOATS | COMPLEX))
@pytest.mark.parametrize("step", [1e-9, 1e-3, 0.3])
def test_calls_that_differ_by_rounding_are_told_together_as_alone(name: str, step: float) -> None:
    rng = np.random.default_rng(2)
    wide = torch.from_numpy(rng.normal(size=(40, 9, 7)))
    expected, actual = wide.to(torch_dtype(name)), (wide * (1 + step)).to(torch_dtype(name))
    actual[::4] = expected[::4]
    for tolerance in (requested(None, None), Tolerance(1e-2, 1e-2), Tolerance(0, 0)):
        found = compare_stacked([expected], [actual], tolerance)
        alone = [compare([want], [got], tolerance) for want, got in zip(expected, actual, strict=True)]
        assert all(close(*pair) for pair in zip(found, alone, strict=True))
        assert close(merge_comparisons(found), merge_comparisons(alone))
        assert asdict(merge(found))["calls_passed"] == sum(call.passed for call in alone) >= 10


def test_scalars_of_many_calls_compare() -> None:
    expected = torch.arange(5.0)
    assert [call.passed for call in compare_stacked([expected], [expected.clone()], Tolerance())] == [True] * 5
    actual = torch.tensor([0.0, 1.0, 2.5, 3.0, 4.01])
    found = compare_stacked([expected], [actual], Tolerance())
    assert [call.passed for call in found] == [True, True, False, True, True]
    assert found[2].first_mismatch == {"output": 0, "index": [], "expected": 2.0, "actual": 2.5}


def test_outputs_of_another_form_are_wrong_in_every_call() -> None:
    def stacks(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        return [torch.zeros(5, *shape, dtype=dtype) for shape in shapes]

    tolerance = Tolerance(1e30, 1e30)
    for expected, actual in [
        (stacks((2, 3)), stacks((3, 2))),
        (stacks((2, 3), ()), stacks((2, 3), (1,))),
        (stacks((0, 3)), stacks((0, 4))),
        (stacks((2,)), stacks((2,), dtype=torch.float64)),
        (stacks((2,), (2,)), stacks((2,))),
        (stacks(), stacks((2,))),
        (stacks((2,)), stacks()),
    ]:
        found = compare_stacked(expected, actual, tolerance)
        assert found == [compare([s[0] for s in expected], [s[0] for s in actual], tolerance)] * 5
        assert not any(call.passed for call in found)
        assert merge(found).calls_passed == 0


def test_on_the_cpu_equal_outputs_of_many_calls_are_told_by_their_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty passes over each element made a comparison of small kernels take seconds."""
    measured = []

    def counted(expected: torch.Tensor, *others: Any) -> torch.Tensor:
        measured.append(len(expected))
        return measure_rows(expected, *others)

    monkeypatch.setattr(comparison, "measure_rows", counted)
    same = torch.tensor([1.0, math.nan, math.inf])
    found = together([([same], [same.clone()]), ([same], [same + 5]), ([same], [same.clone()])], Tolerance())
    assert [call.passed for call in found] == [True, False, True]
    assert measured == [1]


def test_large_outputs_take_bounded_memory() -> None:
    torch.manual_seed(0)
    expected = torch.randn(1 << 23)
    actual = expected + 1e-3
    with torch.profiler.profile(profile_memory=True) as profile:
        found = one(expected, actual)
    assert found.passed
    assert found.element_count == 1 << 23
    assert 0 < _peak(profile) < 256 << 20


@pytest.mark.parametrize("differ", [0.0, 1e-3])
def test_many_calls_take_the_memory_of_few(differ: float) -> None:
    """The stacks are 64 MiB, a window's twice as far apart and turned: what is copied of them is copied in pieces."""
    memory = torch.zeros(1 << 10, 2, 1 << 7, 1 << 7)
    expected = memory[:, 0].transpose(1, 2)
    actual = (expected + differ).transpose(1, 2).contiguous().transpose(1, 2)
    with torch.profiler.profile(profile_memory=True) as profile:
        found = compare_stacked([expected] * 3, [actual] * 3, Tolerance())
    assert all(call.passed for call in found)
    assert _peak(profile) < 16 << 20


def _peak(profile: Any) -> int:
    live, peak = 0, 0
    for event in sorted(_allocations(profile), key=lambda event: event[0]):
        live += event[1]
        peak = max(peak, live)
    return peak


def _allocations(profile: Any) -> list[tuple[int, int]]:
    """(time, bytes) of every allocation and release that the profiler saw."""
    return [
        (event.start_ns(), event.nbytes())
        for event in profile.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]


def test_without_a_tolerance_of_its_own_a_request_is_judged_by_the_scale_of_the_output() -> None:
    expected = torch.full((4, 256), 10.0)
    expected[:, 0] = 0.0
    near_zero = expected.clone()
    near_zero[:, 0] = 0.09
    assert compare([expected], [near_zero], requested(None, None)).passed
    assert not compare([expected], [near_zero], requested(1e-2, None)).passed
    assert not compare([expected], [near_zero], requested(None, 1e-2)).passed
    assert not compare([expected], [near_zero + 0.2], requested(None, None)).passed
    small = torch.full((1024,), 1 / 1024)
    assert not compare([small], [small + 0.011], requested(None, None)).passed


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "bfloat16"])
def test_without_a_tolerance_of_its_own_a_neighbouring_number_is_right(name: str) -> None:
    dtype = torch_dtype(name)
    bits = {1: torch.uint8, 2: torch.int16}[dtype.itemsize]
    expected = (torch.rand(256) * 8 - 4).to(dtype)
    neighbours = (expected.view(bits) ^ 1).view(dtype)
    assert compare([expected], [neighbours], requested(None, None)).passed
    further = expected.to(torch.float32) * (1 + 3 * torch.finfo(dtype).eps)
    assert not compare([expected], [further.to(dtype)], requested(None, None)).passed


def test_a_nan_or_an_infinity_does_not_widen_the_scale() -> None:
    expected = torch.tensor([0.0, torch.inf, torch.nan, 1.0])
    actual = torch.tensor([0.5, torch.inf, torch.nan, 1.0])
    assert not compare([expected], [actual], requested(None, None)).passed


@pytest.mark.parametrize("name", ["float64", "complex128"])
def test_numbers_whose_squares_are_too_large_widen_no_scale(name: str) -> None:
    """An infinite scale would let anything pass."""
    expected = torch.randn(64, dtype=torch_dtype(name)) * 1e200
    half = expected.clone()
    half[32:] = 0
    assert not compare([expected], [half], requested(None, None)).passed
    assert compare([expected], [expected * (1 + 1e-4)], requested(None, None)).passed
