"""A silent downcast is named, by what speaks for it; honest float32 is not."""

import math
from collections.abc import Callable

import pytest
import torch

from domain.flags.codes import FlagCode
from validation.evidence.precision_estimate import precision_finding
from validation.evidence.reduced_precision import rounded

Op = Callable[..., torch.Tensor]


def drawn(*shape: int, seed: int = 0, kind: str = "randn") -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator) if kind == "randn" else torch.rand(shape, generator=generator)


def product_inputs(kind: str = "randn", inner: int = 512) -> list[torch.Tensor]:
    return [drawn(96, inner, kind=kind), drawn(inner, 80, seed=1, kind=kind)]


def find(op: Op, inputs: list[torch.Tensor], candidate: torch.Tensor):
    expected, reference = op(*(x.double() for x in inputs)), op(*inputs)
    return precision_finding([expected], [reference], [candidate])


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "tf32"])
def test_a_product_of_rounded_operands_is_named(precision):
    inputs = product_inputs()
    found = find(torch.matmul, inputs, torch.matmul(*(rounded(x, precision) for x in inputs)))
    assert found is not None and found.finding is not None and found.suspected_dtype is not None
    assert precision in found.suspected_dtype
    assert found.candidate_error > 30 * found.reference_error
    assert found.candidate_max_error >= found.candidate_error


def test_a_product_of_cut_off_operands_is_named():
    """Matrix units may drop the digits of float32 operands beyond TF32's."""
    inputs = product_inputs()
    found = find(torch.matmul, inputs, torch.matmul(*((x.view(torch.int32) >> 13 << 13).view(x.dtype) for x in inputs)))
    assert found is not None and found.suspected_dtype is not None and "tf32" in found.suspected_dtype


def test_an_outright_cast_is_named_by_the_grid():
    inputs = product_inputs()
    for dtype in (torch.bfloat16, torch.float16):
        low = torch.matmul(*(x.to(dtype) for x in inputs)).float()
        found = find(torch.matmul, inputs, low)
        assert found is not None and found.suspected_dtype == str(dtype).removeprefix("torch.")
        assert found.finding is not None and "every one of its 7680 values" in found.finding.message


@pytest.mark.parametrize(
    ("dtype", "coarser"), [(torch.float16, torch.bfloat16), (torch.float8_e4m3fn, torch.float8_e5m2)]
)
def test_a_format_with_fewer_fraction_bits_is_named_though_its_error_is_small(dtype, coarser):
    expected = drawn(96, 80).double()
    honest = expected.to(dtype)
    found = precision_finding([expected], [honest], [expected.to(coarser).to(dtype)])
    assert found is not None and found.finding is not None
    assert (found.finding.code, found.suspected_dtype) == (
        FlagCode.LOWER_PRECISION,
        str(coarser).removeprefix("torch."),
    )
    for reference, candidate in ((honest, honest), (expected.to(coarser).to(dtype),) * 2):
        found = precision_finding([expected], [reference], [candidate])
        assert found is not None and found.finding is None, "as the reference is"


def test_few_values_or_values_of_both_formats_name_no_format():
    few, halves = drawn(63).double(), torch.arange(-64, 64).double() / 2
    for expected in (few, halves):
        found = precision_finding([expected], [expected.half()], [expected.bfloat16().half()])
        assert found is not None and found.finding is None


def blocked(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(left.shape[0], right.shape[1])
    for start in range(0, left.shape[1], 16):
        total = total + left[:, start : start + 16] @ right[start : start + 16]
    return total


def split3(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Float32 out of bfloat16 products: three terms each."""

    def terms(x: torch.Tensor) -> list[torch.Tensor]:
        parts = []
        for _ in range(3):
            parts.append(rounded(x, "bfloat16"))
            x = x - parts[-1]
        return parts

    return sum(
        (a @ b for i, a in enumerate(terms(left)) for j, b in enumerate(terms(right)) if i + j < 3), torch.zeros(())
    )


@pytest.mark.parametrize("kind", ["randn", "rand"])
@pytest.mark.parametrize("honest", [torch.matmul, blocked, split3])
def test_honest_float32_is_not_named_whatever_its_order(honest, kind):
    inputs = product_inputs(kind)
    found = find(torch.matmul, inputs, honest(*inputs))
    assert found is not None and found.finding is None and found.candidate_error < 1e-5


def test_a_sum_one_by_one_is_not_named():
    x = drawn(256, 4096, kind="rand")
    total = torch.zeros(256)
    for column in x.unbind(1):
        total = total + column
    found = find(lambda y: y.sum(1), [x], total)
    assert found is not None and found.finding is None


def test_tf32_is_fine_where_the_reference_has_it():
    inputs = product_inputs()
    low = torch.matmul(*(rounded(x, "tf32") for x in inputs))
    found = precision_finding([torch.matmul(*(x.double() for x in inputs))], [low], [low.clone()])
    assert found is not None and found.finding is None and found.candidate_error > 1e-4


@pytest.mark.parametrize("op", [torch.relu, torch.neg, torch.round, torch.sign, lambda x: x * 0])
def test_exact_operations_are_not_named(op):
    x = drawn(64, 64)
    found = find(op, [x], op(x))
    assert found is None or (found.finding is None and found.candidate_error == 0)


def test_inputs_that_are_lower_precision_numbers_are_nobodys_downcast():
    x = rounded(drawn(64, 64), "bfloat16")
    found = find(torch.relu, [x], torch.relu(x) * (1 + 1e-4))
    assert found is not None and (found.finding is None or "every one" not in found.finding.message)


def test_a_wrong_answer_is_not_called_a_downcast():
    inputs = product_inputs()
    found = find(torch.matmul, inputs, drawn(96, 80, seed=9) * 20)
    assert found is not None and found.suspected_dtype is None and found.candidate_error > 0.5
    assert found.finding is not None and found.finding.code is FlagCode.UNEXPLAINED_ERROR


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_error_of_few_elements_is_no_rounding(dtype):
    """As of a triangle without its diagonal, or with content where it has zeros."""
    x = drawn(200, 200, seed=3).to(dtype).tril()
    for wrong in (x.tril(-1) + 0.9 * x.diag().diag(), x + 1e-2 * drawn(200, 200, seed=4).to(dtype).triu(150)):
        found = precision_finding([x.double()], [x], [wrong])
        assert found is not None and found.suspected_dtype is None and 1e-3 < found.candidate_error < 0.03
        assert found.finding is not None and found.finding.code is FlagCode.UNEXPLAINED_ERROR
        assert "so it is no rounding" in found.finding.message


@pytest.mark.parametrize("bounded", [torch.tanh, torch.nn.functional.hardtanh, torch.nn.functional.relu6])
def test_a_lower_precision_is_named_where_most_elements_are_at_a_bound(bounded):
    x, w = drawn(512, 512, seed=3), drawn(512, 512, seed=4)
    rounded = x.bfloat16().double() @ w.bfloat16().double()
    found = precision_finding([bounded(x @ w)], [bounded(x @ w).float()], [bounded(rounded).float()])
    assert found is not None and found.suspected_dtype == "bfloat16"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(64, 64), (4, 16)])
def test_an_error_larger_than_rounding_gives_is_told_with_its_size(shape, dtype):
    """As where all values are small beside the tolerance, which then passes any formula."""
    x = drawn(*shape, kind="rand").to(dtype)
    found = precision_finding([x.double() * 0.03], [x * 0.03], [x * 0.036])
    assert found is not None and found.suspected_dtype is None and found.finding is not None
    assert found.finding.code is FlagCode.UNEXPLAINED_ERROR
    assert found.finding.data["error_rms"] == pytest.approx(0.2, rel=0.1)


@pytest.mark.parametrize("shape", [(), (1,), (7,)])
def test_of_few_elements_too(shape):
    x = drawn(*shape, 20, kind="rand")
    found = find(lambda y: y.var(-1), [x], x.var(-1, unbiased=False))
    assert found is not None and found.suspected_dtype is None
    assert found.finding is not None and found.finding.data["error_rms"] == pytest.approx(0.05, rel=0.1)
    right = find(lambda y: y.var(-1), [x], ((x - x.mean(-1, keepdim=True)).square().sum(-1) / 19))
    assert right is not None and right.finding is None
    # In half precision a loss may be so near zero that rounding is all of it.
    half = x.half()
    few = precision_finding([half.double().var(-1)], [half.var(-1)], [half.var(-1, unbiased=False)])
    assert few is not None and few.finding is None and few.candidate_error > 0.04


def test_all_sizes_of_an_error_have_a_sentence_from_tf32_on():
    x = drawn(64, 64)
    for factor in (2e-4, 2e-3, 1e-2, 3.1e-2, 3.2e-2, 0.1, 0.5, 1.0, 100.0):
        found = find(lambda y: y * 1, [x], x * (1 + factor))
        assert found is not None and found.finding is not None and (found.suspected_dtype is None) is (factor > 1 / 32)


def zero_sums(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)).sum(-1)


def one_pass(x: torch.Tensor) -> torch.Tensor:
    return (x.square().mean(-1) - x.mean(-1).square()) * x.shape[-1] / (x.shape[-1] - 1)


def divided(e: torch.Tensor) -> torch.Tensor:
    return e / e.sum(-1, keepdim=True)


LOG2_E = math.log2(math.e)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3, 17), (128, 64)])
@pytest.mark.parametrize(
    ("op", "other"),
    [
        (zero_sums, lambda x: x.sum(-1) - x.mean(-1) * x.shape[-1]),
        (zero_sums, lambda x: torch.full_like(x[..., 0], 1e-3)),
        (lambda x: x.softmax(-1).sum(-1) - 1, lambda x: divided(x.exp()).sum(-1) - 1),
        (lambda x: x.sum(-1), lambda x: x.flip(-1).cumsum(-1)[..., -1]),
        (lambda x: x.var(-1), one_pass),
        (lambda x: (9 * x).exp(), lambda x: torch.exp2(x * (9 * LOG2_E))),
        (lambda x: (30 * x).softmax(-1), lambda x: divided(((x - x.amax(-1, keepdim=True)) * (30 * LOG2_E)).exp2())),
        (lambda x: (x * x.roll(1, -1)).mean(), lambda x: (x * x.roll(1, -1)).mean(-1).mean()),
    ],
)
@pytest.mark.parametrize("kind", ["randn", "rand"])
def test_honest_answers_near_zero_or_amplified_have_no_finding(kind, op, other, shape, dtype):
    for seed in range(10):
        x = drawn(*shape, seed=seed, kind=kind).to(dtype)
        found = precision_finding([op(x.double())], [op(x)], [other(x)])
        assert found is None or found.finding is None, found


def test_float32_where_float64_is_promised():
    inputs = [x.double() for x in product_inputs()]
    low = torch.matmul(*(x.float() for x in inputs)).double()
    found = precision_finding([torch.matmul(*inputs)], [torch.matmul(*inputs)], [low])
    assert found is not None and found.suspected_dtype == "float32"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_low_precision_contracts_have_errors_but_no_finding(dtype):
    expected = drawn(32, 32).double()
    ours = expected.to(dtype)
    found = precision_finding([expected], [ours], [ours])
    assert found is not None and found.finding is None and found.reference_error > 1e-4


def test_nan_and_infinity_are_left_out():
    x = drawn(64, 64)
    x[0, 0], x[1, 1], x[2, 2] = float("nan"), float("inf"), -float("inf")
    found = find(torch.relu, [x], rounded(torch.relu(x), "bfloat16"))
    assert found is not None and found.suspected_dtype == "bfloat16"
    everything = torch.full((8, 8), float("nan"))
    assert precision_finding([everything.double()], [everything], [everything]) is None


def test_what_cannot_be_compared_is_left_out():
    numbers, x = torch.arange(9), drawn(9)
    assert precision_finding([numbers], [numbers], [numbers]) is None
    assert precision_finding([x.double()], [x], [x[:3]]) is None
    assert precision_finding([x.double()], [x], [x.half()]) is None
    assert precision_finding([x[:0].double()], [x[:0]], [x[:0]]) is None
    assert precision_finding([], [], []) is None


def test_few_elements_are_luck():
    x = drawn(16)
    found = precision_finding([x.double()], [x], [rounded(x, "bfloat16")])
    assert found is not None and found.finding is None


def test_the_worst_output_speaks_and_its_index_is_given():
    x = drawn(64, 64)
    found = precision_finding([x.double()] * 2, [x, x], [x, rounded(x, "bfloat16")])
    assert found is not None and found.output == 1 and found.finding is not None and found.finding.data["output"] == 1


def test_larger_than_a_piece_and_not_contiguous():
    x = drawn(3000, 1500).t()
    found = find(torch.exp, [x], rounded(torch.exp(x), "bfloat16"))
    assert found is not None and found.suspected_dtype == "bfloat16"


def test_rounding_is_to_the_nearest():
    x = torch.tensor([1 + 2**-11 + 2**-20, -(1 + 2**-10 + 2**-12), 0.0, float("inf"), 3.0])
    assert rounded(x, "tf32").tolist() == [1 + 2**-10, -(1 + 2**-10), 0.0, float("inf"), 3.0]
    assert rounded(torch.arange(3), "bfloat16").tolist() == [0, 1, 2]
    assert rounded(x.double(), "float32").dtype == torch.float64


def test_errors_of_one_sign_are_told_to_be_so():
    x = torch.rand(512, 400, generator=torch.Generator().manual_seed(3))
    exact = x.double().mean(-1)
    found = precision_finding([exact], [x.mean(-1)], [x[:, :-1].sum(-1) / 400])
    assert found is not None and found.finding is not None and "of one sign" in found.finding.message
    rounded_sums = precision_finding([exact], [x.mean(-1)], [x.bfloat16().float().mean(-1).bfloat16().float()])
    assert rounded_sums is not None and rounded_sums.finding is not None
    assert "of one sign" not in rounded_sums.finding.message
