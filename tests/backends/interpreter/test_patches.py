"""Triton's interpreter gives the answers of a GPU, where kernels have none: what it gets wrong by itself.

In a process of its own: the interpreter leaves Triton's language patched behind it, and nothing is compiled there then.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from domain.fault import KernelFault
from tests.backends.contracts import contract, scalar, tensor
from tests.backends.loading import kernel, loaded

SIZE = 64
TWO = """
import triton
import triton.language as tl
{imports}

@triton.jit
def two(x_ptr, y_ptr, out_ptr, factor, flag, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at)
    y = tl.load(y_ptr + at)
    tl.store(out_ptr + at, {expression})
"""
PRODUCT = """
import triton
import triton.language as tl

@triton.jit
def product(a, b, c, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    at = i[:, None] * SIZE + i[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))
"""
LIBDEVICE = "from triton.language.extra import libdevice\nfrom triton.language.extra.cuda.libdevice import pow, tanh"
OTHER_NAMES = "from triton.language.math import rsqrt\ncast, largest, total = tl.cast, tl.maximum, tl.sum"
BFLOAT16 = [
    ("x + y", lambda x, y: x + y),
    ("x * 0.3 - y", lambda x, y: x * 0.3 - y),
    ("tl.where(x > y, -x, y / 3)", lambda x, y: torch.where(x > y, -x, y / 3)),
    ("tl.clamp(x, -0.5, 0.5)", lambda x, y: x.clamp(-0.5, 0.5)),
    ("tl.fma(x, y, x)", lambda x, y: x * y + x),
    ("x - tl.sum(y, axis=0)", lambda x, y: x - y.sum()),
    ("x - tl.max(y, axis=0)", lambda x, y: x - y.max()),
    ("tl.cumsum(x, axis=0)", lambda x, y: x.cumsum(0)),
    ("tl.sort(x)", lambda x, y: x.sort().values),
    ("(x.to(tl.float32) * y.to(tl.float32)).to(tl.bfloat16)", lambda x, y: x * y),
    ("x.to(tl.int32).to(tl.bfloat16)", lambda x, y: x.int().bfloat16()),
    ("(x > 0).to(tl.bfloat16)", lambda x, y: (x > 0).bfloat16()),
    ("tl.exp(x.to(tl.float32))", lambda x, y: x.float().exp().bfloat16()),
]


Answer = Callable[..., torch.Tensor]


@pytest.fixture(scope="module")
def process() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=interpret) as pool:
        yield pool


def interpret() -> None:
    """What a worker without a GPU has in its runners' environment."""
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture
def answer(process: ProcessPoolExecutor, tmp_path: Path) -> Answer:
    """`stored` there; raises AssertionError where the kernel failed, with the fault's status before its message."""

    def there(function: Answer, *args: Any, **named: Any) -> torch.Tensor:
        result = process.submit(told, function, tmp_path, *args, **named).result()
        assert isinstance(result, torch.Tensor), result
        return result

    return there


def told(function: Callable[..., torch.Tensor], *args: Any, **named: Any) -> torch.Tensor | str:
    """Its result, or its fault in words."""
    try:
        return function(*args, **named)
    except KernelFault as fault:
        return f"{fault.status}: {fault.message}"


def stored(
    folder: Path, expression: str, x: torch.Tensor, y: torch.Tensor, imports: str = "", dtype: Any = None
) -> torch.Tensor:
    """What a kernel with that expression stores; factor is 0.3 and flag is true."""
    tensors = [tensor("x", SIZE), tensor("y", SIZE), tensor("out", SIZE, role="output")]
    flag = {"name": "flag", "type": "bool", "value": True}
    factor = {"name": "factor", "type": "float", "value": 0.3}
    io = contract(*tensors, factor, flag, scalar("SIZE", SIZE, meta=True), grid=1)
    source = TWO.format(expression=expression, imports=imports)
    out = torch.zeros(SIZE, dtype=dtype or x.dtype)
    loaded(kernel(source, "triton", io), folder).call([x, y, out, 0.3, True, SIZE])
    return out


GUARDED = """
import torch
import triton
import triton.language as tl

@triton.jit
def double(x_ptr, out_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at))

def kernel_fn(x):
    out = torch.empty_like(x)
    with torch.cuda.device(GUARD):
        double[(1,)](x, out, SIZE=x.numel())
    return out
"""

TRACED = """
import torch
import triton
import triton.language as tl

@triton.jit
def double(x_ptr, out_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at))

@triton.jit
def double_pair(pair, SIZE: tl.constexpr):
    double(pair[0], pair[1], SIZE)

@torch.library.triton_op("test_patches::doubled", mutates_args={})
def doubled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(LAUNCHED)[(1,)](GIVEN, SIZE=x.numel())
    return out

@torch.compile(fullgraph=True)
def kernel_fn(x):
    return doubled(x)
"""


def launched(folder: Path, source: str, x: torch.Tensor) -> torch.Tensor:
    """What `kernel_fn` of that source returns."""
    result = loaded(kernel(source, "triton"), folder).call([x])
    assert isinstance(result, torch.Tensor)
    return result


def drawn(dtype: torch.dtype, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    x, y = (torch.randn(SIZE, generator=generator) * scale for _ in range(2))
    return x.to(dtype), y.to(dtype)


def product(folder: Path, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    tensors = [tensor(name, 16, 16, role=role) for name, role in (("a", "input"), ("b", "input"), ("c", "output"))]
    io = contract(*tensors, scalar("SIZE", 16, meta=True), grid=1)
    c = torch.zeros(16, 16)
    loaded(kernel(PRODUCT, "triton", io), folder).call([a, b, c, 16])
    return c


@pytest.mark.parametrize(("expression", "expected"), BFLOAT16)
def test_bfloat16_is_computed_with(expression: str, expected: Any, answer: Answer) -> None:
    x, y = drawn(torch.bfloat16)
    torch.testing.assert_close(answer(stored, expression, x, y), expected(x, y), atol=0.02, rtol=0.02)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("tl.where(x > 0 and y > 0 and x > y, x, y)", lambda x, y: torch.where((x > 0) & (y > 0) & (x > y), x, y)),
        ("tl.where(not (x > 0 or y > 0), x, y)", lambda x, y: torch.where((x > 0) | (y > 0), y, x)),
        ("tl.where(flag and x > y, x, y)", torch.maximum),
        ("tl.where(x > y and SIZE, x, y)", torch.maximum),
        ("tl.where(x > y or None, x, y)", torch.maximum),
        ("tl.where(x > y and (SIZE < 0), x, y)", lambda x, y: y),
        ("x if not flag and SIZE > 0 else y", lambda x, y: y),
        ("x * (not flag).to(tl.float32) + y", lambda x, y: y),
    ],
)
def test_boolean_operators_apply_to_the_elements_of_blocks(expression: str, expected: Any, answer: Answer) -> None:
    x, y = drawn(torch.float32)
    assert torch.equal(answer(stored, expression, x, y), expected(x, y))


OWN_MIN = "\n@triton.jit\ndef min(a, b):\n    return a - b\n"


@pytest.mark.parametrize(
    ("expression", "imports", "expected"),
    [
        ("max(x, y)", "", torch.maximum),
        ("min(x, y, 0.25)", "", lambda x, y: torch.minimum(x, y).clamp(max=0.25)),
        ("x + max(SIZE, 3)", "", lambda x, y: x + SIZE),
        ("min(x, y)", OWN_MIN, lambda x, y: x - y),
        ("tl.maximum(x / 0 * 0, y)", "", lambda x, y: y),
        ("x.exp() + y.abs().sqrt()", "", lambda x, y: x.exp() + y.abs().sqrt()),
        ("x + tl.sum(x.floor())", "", lambda x, y: x + x.floor().sum()),
    ],
)
def test_functions_of_blocks(expression: str, imports: str, expected: Any, answer: Answer) -> None:
    x, y = drawn(torch.float32)
    torch.testing.assert_close(answer(stored, expression, x, y, imports), expected(x, y))


def test_waiting_for_the_launch_before_takes_no_time(answer: Answer) -> None:
    x, y = drawn(torch.float32)
    waiting = "from triton.language.extra.cuda import gdc_wait"
    expression = "x)\n    gdc_wait()\n    tl.extra.cuda.gdc_launch_dependents("
    assert torch.equal(answer(stored, expression, x, y, waiting), x)


FUNCTIONS = """
@triton.jit
def composed(a, b, c, d):
    return a * c, b * c + d

@triton.jit
def first_positive(a, b):
    if a > 0:
        return a
    return b

@triton.jit
def larger(a, b):
    return tl.where(a > b, a, b)
"""
"""To reduce by: not commutative and over two blocks, with a branch on a value, and an ordinary one."""


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("tl.reduce(x, 0, larger)", lambda x, y: x.max()),
        ("tl.reduce(x, 0, first_positive)", lambda x, y: x[x > 0][0]),
        (
            "tl.reduce(tl.reshape(x, (4, 16)), 1, first_positive).sum(0)",
            lambda x, y: sum(row[row > 0][0] for row in x.view(4, 16)),
        ),
        (
            "tl.reduce((x, y), 0, composed)[1]",
            lambda x, y: functools.reduce(lambda b, at: b * x[at] + y[at], range(SIZE), 0),
        ),
        (
            "tl.reduce(tl.reshape(x, (4, 16)), 0, larger, keep_dims=True).sum(1)",
            lambda x, y: x.view(4, 16).amax(0).sum(),
        ),
        ("tl.reduce(tl.reshape(x, (4, 16)), -1, larger).sum(0)", lambda x, y: x.view(4, 16).amax(1).sum()),
    ],
)
def test_a_function_of_the_source_reduces(expression: str, expected: Any, answer: Answer) -> None:
    x, y = drawn(torch.float32)
    found = answer(stored, expression, x, y, imports=FUNCTIONS)
    torch.testing.assert_close(found, expected(x, y).expand(SIZE), atol=1e-5, rtol=1e-5)


def recurrence(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """b with b[t] = b[t - 1] * x[t] + y[t] along the last dimension, b[-1] being 0."""
    states = [torch.zeros_like(y[..., 0])]
    for at in range(y.shape[-1]):
        states.append(states[-1] * x[..., at] + y[..., at])
    return torch.stack(states[1:], -1)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("tl.associative_scan((x, y), 0, composed)[1]", recurrence),
        (
            "tl.associative_scan((x, y), 0, composed, reverse=True)[1]",
            lambda x, y: recurrence(x.flip(0), y.flip(0)).flip(0),
        ),
        (
            "tl.associative_scan((tl.reshape(x, (4, 16)), tl.reshape(y, (4, 16))), -1, composed)[1].reshape(SIZE)",
            lambda x, y: recurrence(x.view(4, 16), y.view(4, 16)).view(-1),
        ),
        (
            "tl.associative_scan(tl.reshape(x, (4, 16)), 0, larger).reshape(SIZE)",
            lambda x, y: x.view(4, 16).cummax(0).values.view(-1),
        ),
        (
            "tl.associative_scan(tl.reshape(x, (4, 16)), -1, first_positive).reshape(SIZE)",
            lambda x, y: torch.stack(
                [
                    functools.reduce(lambda a, b: a if a > 0 else b, row[: at + 1])
                    for row in x.view(4, 16)
                    for at in range(16)
                ]
            ),
        ),
    ],
)
def test_a_function_of_the_source_scans(expression: str, expected: Any, answer: Answer) -> None:
    x, y = drawn(torch.float32)
    found = answer(stored, expression, x, y, imports=FUNCTIONS)
    torch.testing.assert_close(found, expected(x, y), atol=1e-5, rtol=1e-5)


SCANNED = """
import torch
import triton
import triton.language as tl

CALLS = []

def count():
    CALLS.append(None)

@triton.jit
def composed(a, b, c, d):
    count()
    return a * c, b * c + d

@triton.jit
def recur(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.associative_scan((tl.load(x_ptr + at), tl.load(y_ptr + at)), 0, composed)[1])

def kernel_fn(x):
    out = torch.empty_like(x)
    recur[(1,)](x, x, out, BLOCK=x.numel())
    return torch.cat([out, torch.tensor([float(len(CALLS))])])
"""


def test_a_long_scan_calls_its_function_once_a_doubling(answer: Answer) -> None:
    x = torch.rand(1 << 11)
    found = answer(launched, SCANNED, x)
    torch.testing.assert_close(found[:-1], recurrence(x, x))
    assert found[-1] == 11


def test_bfloat16_is_rounded_to_the_nearest(answer: Answer) -> None:
    x, y = drawn(torch.float32)
    assert torch.equal(answer(stored, "x + y", x, y, dtype=torch.bfloat16), (x + y).bfloat16())


def test_a_product_of_bfloat16_matrices(answer: Answer) -> None:
    a, b = (torch.randn(16, 16).bfloat16() for _ in range(2))
    torch.testing.assert_close(answer(product, a, b), a.float() @ b.float(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("dtype", "name"), [(torch.float8_e4m3fn, "float8e4nv"), (torch.float8_e5m2, "float8e5")])
def test_float8_is_rounded_as_a_gpu_does(dtype: torch.dtype, name: str, answer: Answer) -> None:
    x, y = drawn(torch.float32, scale=30.0)
    x[0], x[1], x[2] = 1.99, 1e6, 3e-3
    narrow = answer(stored, f"x.to(tl.{name})", x, y, dtype=dtype)
    largest = torch.finfo(dtype).max
    assert torch.equal(narrow.float(), x.clamp(-largest, largest).to(dtype).float())
    assert torch.equal(answer(stored, "x.to(tl.float32)", narrow, narrow, dtype=torch.float32), narrow.float())


def test_a_float_argument_is_no_number_of_pythons(answer: Answer) -> None:
    x, y = drawn(torch.float32)
    torch.testing.assert_close(answer(stored, "x * factor.to(tl.float32)", x, y), x * 0.3)


@pytest.mark.parametrize("pointer", ["tl.where(flag, x_ptr, y_ptr) + at", "tl.where(at < SIZE, x_ptr + at, y_ptr)"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_choice_of_pointers(pointer: str, dtype: torch.dtype, answer: Answer) -> None:
    x, y = drawn(dtype)
    assert torch.equal(answer(stored, f"tl.load({pointer})", x, y), x)


def test_a_bool_argument(answer: Answer) -> None:
    x, y = drawn(torch.float32)
    assert torch.equal(answer(stored, "tl.where(flag, x, y)", x, y), x)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("libdevice.tanh(x)", lambda x, y: torch.tanh(x)),
        ("tanh(x * factor)", lambda x, y: torch.tanh(x * 0.3)),
        ("pow(x, 2.0) + libdevice.erf(y)", lambda x, y: x**2 + torch.erf(y)),
        ("tl.where(libdevice.isnan(x / (y - y)), 0.0, libdevice.rint(x))", lambda x, y: torch.round(x)),
        ("libdevice.llrint(x * 3).to(tl.float32)", lambda x, y: torch.round(x * 3)),
        ("x * libdevice.rsqrt(tl.sum(y * y, axis=0))", lambda x, y: x * torch.rsqrt((y * y).sum())),
    ],
)
def test_libdevice(expression: str, expected: Any, answer: Answer) -> None:
    x, y = drawn(torch.float32)
    torch.testing.assert_close(answer(stored, expression, x, y, LIBDEVICE), expected(x, y))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("cast(x, tl.int32).to(tl.float32)", lambda x, y: x.int().float()),
        ("largest(x, y) + rsqrt(y * y)", lambda x, y: torch.maximum(x, y) + torch.rsqrt(y * y)),
        ("x - total(y, axis=0)", lambda x, y: x - y.sum()),
    ],
)
def test_functions_of_triton_under_other_names(expression: str, expected: Any, answer: Answer) -> None:
    x, y = drawn(torch.float32)
    torch.testing.assert_close(answer(stored, expression, x, y, OTHER_NAMES), expected(x, y))


def test_libdevice_rounds_halves_away_from_zero_and_nothing_else(answer: Answer) -> None:
    given = torch.tensor([0.5, -2.5, 1.5, 0.49999997, 8388609.0, -8388611.0, -0.0, float("inf")]).repeat(SIZE // 8)
    expected = torch.tensor([1.0, -3.0, 2.0, 0.0, 8388609.0, -8388611.0, -0.0, float("inf")]).repeat(SIZE // 8)
    assert torch.equal(answer(stored, "libdevice.round(x)", given, given, LIBDEVICE), expected)


@pytest.mark.parametrize(
    ("expression", "dtype"),
    [
        ("libdevice.j0(x)", torch.bfloat16),
        ("x + tl.atomic_add(out_ptr + at, x)", torch.bfloat16),
        ("tl.inline_asm_elementwise('', '=r,r', [x], x.dtype, 1, 1)", torch.bfloat16),
        ("x + tl.extra.cuda.smid()", torch.float32),
        ("x + tl.atomic_xchg(out_ptr + at, x)", torch.float32),
    ],
)
def test_what_it_cannot_do_is_no_fault_of_the_kernel(expression: str, dtype: torch.dtype, answer: Answer) -> None:
    x, y = drawn(dtype)
    with pytest.raises(AssertionError, match=r"^unsupported: .*Triton's interpreter, which takes its place, cannot do"):
        answer(stored, expression, x, y, LIBDEVICE)


@pytest.mark.parametrize("guard", ["x.device", "x.device.index", "-1"])
def test_a_device_guard_around_host_tensors_selects_nothing(guard: str, answer: Answer) -> None:
    x, _ = drawn(torch.float32)
    assert torch.equal(answer(launched, GUARDED.replace("GUARD", guard), x), 2 * x)


def test_a_device_guard_that_names_a_gpu_asks_for_one(answer: Answer) -> None:
    with pytest.raises(AssertionError, match=r"^unsupported: this worker has no GPU, and the source asks"):
        answer(launched, GUARDED.replace("GUARD", "0"), torch.ones(SIZE))


@pytest.mark.parametrize(("name", "arguments"), [("double", "x, out"), ("double_pair", "(x, out)")])
def test_a_launch_that_torch_compile_traces_is_no_fault_of_the_kernel(
    name: str, arguments: str, answer: Answer
) -> None:
    source = TRACED.replace("LAUNCHED", name).replace("GIVEN", arguments)
    with pytest.raises(AssertionError, match=r"^unsupported: .*cannot do this \(.*NotInterpreted: a launch that"):
        answer(launched, source, torch.ones(SIZE))


COMPILED = """
import torch
import triton
import triton.language as tl

@triton.jit
def double(x_ptr, out_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at))

@torch.compile(backend="eager")
def kernel_fn(x):
    out = torch.empty_like(x)
    double[(1,)](x, out, SIZE=x.numel())
    return out + 1
"""


def test_a_launch_in_a_function_under_torch_compile(answer: Answer) -> None:
    x, _ = drawn(torch.float32)
    assert torch.equal(answer(launched, COMPILED, x), 2 * x + 1)


ASSERTS = """
import torch
import triton
import triton.language as tl

@triton.jitDECORATED
def double(x_ptr, out_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at)
    STATEMENT
    tl.store(out_ptr + at, 2 * x)

def kernel_fn(x):
    out = torch.empty_like(x)
    double[(1,)](x, out, SIZE=x.numel(), OPTIONS)
    return out
"""
ASSERTIONS = [
    'tl.device_assert(x > 0, "some are not positive")',
    'tl.device_assert(x > 0, "some are not positive", mask=at < SIZE // 2)',
    'assert x > 0, "some are not positive"',
    'assert tl.max(x) > 0, "some are not positive"',
]


@pytest.mark.parametrize("statement", ASSERTIONS)
@pytest.mark.parametrize(("decorated", "options"), [("", "debug=True"), ("(debug=True)", "")])
def test_assertions_fail_where_a_launch_asks_for_them(
    statement: str, decorated: str, options: str, answer: Answer
) -> None:
    source = ASSERTS.replace("DECORATED", decorated).replace("OPTIONS", options).replace("STATEMENT", statement)
    x, _ = drawn(torch.float32)
    assert torch.equal(answer(launched, source, x.abs() + 1), 2 * (x.abs() + 1))
    with pytest.raises(AssertionError, match=r"^runtime_error: .*some are not positive"):
        answer(launched, source, -x.abs())


@pytest.mark.parametrize("statement", ASSERTIONS)
def test_assertions_are_not_looked_at_without_debug(statement: str, answer: Answer) -> None:
    source = ASSERTS.replace("DECORATED", "").replace("OPTIONS", "").replace("STATEMENT", statement)
    x, _ = drawn(torch.float32)
    assert torch.equal(answer(launched, source, -x.abs()), -2 * x.abs())


PERSISTENT = """
import torch
import triton
import triton.language as tl

@triton.jit
def double(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(size, BLOCK), tl.num_programs(0)):
        at = block * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, mask=at < size), mask=at < size)

def kernel_fn(x):
    out = torch.empty_like(x)
    double[(torch.cuda.get_device_properties(DEVICE).PROPERTY,)](x, out, x.numel(), BLOCK=8)
    return out
"""


@pytest.mark.parametrize("device", ["x.device", "x.device.index", ""])
def test_a_persistent_grid_has_the_multiprocessors_of_the_host(device: str, answer: Answer) -> None:
    x, _ = drawn(torch.float32)
    source = PERSISTENT.replace("DEVICE", device).replace("PROPERTY", "multi_processor_count")
    assert torch.equal(answer(launched, source, x), 2 * x)


@pytest.mark.parametrize(("device", "name"), [("0", "multi_processor_count"), ("x.device", "L2_cache_size")])
def test_a_gpus_own_properties_ask_for_one(device: str, name: str, answer: Answer) -> None:
    source = PERSISTENT.replace("DEVICE", device).replace("PROPERTY", name)
    with pytest.raises(AssertionError, match=r"^unsupported: this worker has no GPU, and the source asks"):
        answer(launched, source, torch.ones(SIZE))


LAUNCHED = """
import math
import torch
import triton
import triton.language as tl

@triton.jit
def double(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, mask=at < size), mask=at < size)

def kernel_fn(x):
    out = torch.zeros_like(x)
    double[GRID](x, out, x.numel(), BLOCK=16)
    return out
"""


@pytest.mark.parametrize(
    "grid",
    [
        "[4]",
        "lambda given: [triton.cdiv(given['size'], given['BLOCK'])]",
        "lambda given: (math.ceil(given['x_ptr'].numel() / given['BLOCK']),)",
    ],
)
def test_a_grid_as_triton_takes_it(grid: str, answer: Answer) -> None:
    x, _ = drawn(torch.float32)
    assert torch.equal(answer(launched, LAUNCHED.replace("GRID", grid), x), 2 * x)


def test_a_grid_that_is_a_number_says_what_it_has_to_be(answer: Answer) -> None:
    with pytest.raises(
        AssertionError, match=r"^runtime_error: .*the grid is 4, and has to be a sequence, such as \(4,\)"
    ):
        answer(launched, LAUNCHED.replace("GRID", "4"), drawn(torch.float32)[0])


def test_a_grid_that_asks_for_an_unknown_argument_is_told_the_names(answer: Answer) -> None:
    source = LAUNCHED.replace("GRID", "lambda meta: (triton.cdiv(meta['size'], meta['BLOCK_SIZE']),)")
    names = r"KeyError: 'BLOCK_SIZE' \(the function gets the kernel's arguments by their names: "
    with pytest.raises(AssertionError, match=rf"^runtime_error: .*{names}x_ptr, out_ptr, size, BLOCK\)"):
        answer(launched, source, drawn(torch.float32)[0])


def test_a_grid_that_finds_nothing_in_a_table_of_its_own_is_told_no_names(answer: Answer) -> None:
    source = LAUNCHED.replace("GRID", "lambda meta: ({1: 2}[meta['size']],)")
    with pytest.raises(AssertionError, match=rf"^runtime_error: .*KeyError: {SIZE}\n"):
        answer(launched, source, drawn(torch.float32)[0])


AUTOTUNED = """
import torch
import triton
import triton.language as tl

def exact(configs, given, **_):
    CAPABILITY
    return [config for config in configs if given["size"] % config.kwargs["BLOCK"] == 0]

BLOCKS = [triton.Config({"BLOCK": size}) for size in (BLOCK_SIZES)]

@triton.autotune(BLOCKS, key=["size"], prune_configs_by={"early_config_prune": exact})
@triton.jit
def double(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at))

def kernel_fn(x):
    out = torch.zeros_like(x)
    for half in (slice(0, 48), slice(48, 64)):
        double[lambda given: (given["size"] // given["BLOCK"],)](x[half], out[half], x[half].numel())
    return out
"""


def test_an_autotuner_takes_a_configuration_that_its_source_allows(answer: Answer) -> None:
    x, _ = drawn(torch.float32)
    source = AUTOTUNED.replace("CAPABILITY", "").replace("BLOCK_SIZES", "64, 32, 16")
    assert torch.equal(answer(launched, source, x), 2 * x)


def test_an_autotuner_that_asks_for_a_gpu_to_choose_takes_its_first(answer: Answer) -> None:
    x, _ = drawn(torch.float32)
    source = AUTOTUNED.replace("CAPABILITY", "torch.cuda.get_device_capability()").replace("BLOCK_SIZES", "16, 64")
    assert torch.equal(answer(launched, source, x), 2 * x)


def test_an_autotuner_s_parameter_given_to_the_launch_too_is_named_as_triton_does(answer: Answer) -> None:
    source = AUTOTUNED.replace("CAPABILITY", "").replace("BLOCK_SIZES", "64, 32, 16")
    source = source.replace("x[half].numel())", "x[half].numel(), BLOCK=16)")
    with pytest.raises(AssertionError, match=r"^runtime_error: .*Conflicting meta-parameters: BLOCK"):
        answer(launched, source, drawn(torch.float32)[0])


COUNTED = """
import torch
import triton
import triton.language as tl

@triton.jit
def fill(ends_ptr, out_ptr, SIZE: tl.constexpr):
    for i in LOOP:
        for j in range(SIZE):
            wide = i.to(tl.int64) * SIZE
            tl.static_assert(wide.dtype == tl.int64 and j.dtype == tl.int32)
            tl.store(out_ptr + wide + j, (i - 3) // 2 * 10 + j)
    for k in tl.static_range(2):
        tl.static_assert(k < 2)

def kernel_fn(ends):
    out = torch.full((4, 4), -1, dtype=torch.int32)
    fill[(1,)](ends, out, SIZE=4)
    return out
"""


@pytest.mark.parametrize(
    "loop", ["range(tl.load(ends_ptr), tl.load(ends_ptr + 1))", "tl.range(0, 4, num_stages=2)", "range(4)"]
)
def test_a_loop_s_counter_is_a_tensor(loop: str, answer: Answer) -> None:
    """Its division rounds towards zero, as on a GPU."""
    source = COUNTED.replace("LOOP", loop)
    rows = torch.tensor([-10, -10, 0, 0], dtype=torch.int32)
    expected = rows[:, None] + torch.arange(4, dtype=torch.int32)
    assert torch.equal(answer(launched, source, torch.tensor([0, 4], dtype=torch.int32)), expected)


def test_a_counter_has_the_type_of_its_bounds(answer: Answer) -> None:
    """A product of it that needs 64 bits has them where a bound has."""
    counted = COUNTED.replace("i.to(tl.int64)", "i").replace("LOOP", "range(tl.load(ends_ptr), 4)")
    source = counted.replace("(i - 3) // 2 * 10 + j)", "i * 1000000007 % 1000)")
    expected = torch.tensor([i * 1000000007 % 1000 for i in range(4)], dtype=torch.int32)[:, None].expand(4, 4)
    assert torch.equal(answer(launched, source, torch.tensor([0, 4])), expected)


CONSTANTS = """
import torch
import triton
import triton.language as tl

FIVE = tl.constexpr(5)

@triton.jit
def fill(out_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(out_ptr + at, at + (SIZE OPERATOR FIVE))

def kernel_fn(x):
    out = torch.empty(64, dtype=torch.int32)
    fill[(1,)](out, SIZE=64)
    return out
"""


@pytest.mark.parametrize(
    ("operator", "value"), [("%", 4), ("&", 0), ("|", 69), ("^", 69), ("<<", 2048), (">>", 2), ("//", 12)]
)
def test_constants_of_a_source_and_a_launch_combine(operator: str, value: int, answer: Answer) -> None:
    found = answer(launched, CONSTANTS.replace("OPERATOR", operator), torch.ones(1))
    assert torch.equal(found, torch.arange(64, dtype=torch.int32) + value)
