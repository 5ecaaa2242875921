"""Kernel type `triton` without a GPU: choosing and binding, the interpreter, and compiling ahead for a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from marshmallow import ValidationError

from api.schemas.kernel import KernelSchema
from backends.base import Artifact, Target
from domain.fault import KernelFault
from domain.result import Status
from tests.backends.contracts import contract, scalar, tensor, values
from tests.backends.loading import built, kernel, loaded, refusal

HEAD = "import triton\nimport triton.language as tl\n"
ADD = """
@triton.jit
def helper(x):
    return x * 1.0

@triton.jit
def add(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, helper(x) + tl.load(y_ptr + offsets, mask=mask), mask=mask)
"""
CONFIGS = "[triton.Config({'BLOCK_SIZE': 128}, num_warps=2), triton.Config({'BLOCK_SIZE': 512}, num_warps=8)]"
TUNED = ADD.replace(
    "\n@triton.jit\ndef add", f"\n@triton.autotune({CONFIGS}, key=['n_elements'])\n@triton.jit\ndef add"
)
HEURISTIC = ADD.replace(
    "\n@triton.jit\ndef add",
    "\n@triton.heuristics({'BLOCK_SIZE': lambda a: triton.next_power_of_2(a['n_elements'])})\n@triton.jit\ndef add",
)
MUL = ADD.replace("def add", "def mul").replace("def helper", "def other").replace("helper(x) +", "other(x) *")
WRAPPER = """
def run(x, y):
    output = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 256),)](x, y, output, x.numel(), BLOCK_SIZE=256)
    return output
"""
DOT = """
@triton.jit
def dot(a, b, c, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    o = i[:, None] * BLOCK + i[None, :]
    tl.store(c + o, tl.dot(tl.load(a + o), tl.load(b + o)))
"""
TENSORS = [tensor("x", 1000), tensor("y", 1000), tensor("output", 1000, role="output")]
N, BLOCK = scalar("n_elements", 1000), scalar("BLOCK_SIZE", 256, meta=True)
CDIV = "cdiv(n_elements, BLOCK_SIZE)"
H200 = Target("cuda", "sm_90")


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker without a GPU has in its runners' environment."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of machine code that no other test has filled."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    return tmp_path / "triton"


def of(source: str, io: dict[str, Any] | None, **metadata: Any) -> Any:
    return kernel(HEAD + source, "triton", io, **metadata)


CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (ADD, contract(*TENSORS, N, BLOCK, grid=4, num_warps=4), {}),
    (ADD, contract(*TENSORS, N, BLOCK, grid={"x": CDIV}, num_warps=8, num_stages=2), {}),
    (ADD, contract(*TENSORS, N, scalar("BLOCK_SIZE", 256), grid=CDIV), {}),
    (ADD, contract(BLOCK, *TENSORS, N, grid=CDIV), {}),
    (ADD, contract(*TENSORS, N, scalar("unlike", 256, meta=True), grid=4), {}),
    (MUL + ADD, contract(*TENSORS, N, BLOCK, grid=CDIV), {"kernel_name": "add"}),
    (TUNED, contract(*TENSORS, N, grid=CDIV, num_warps=4), {}),
    (HEURISTIC, contract(*TENSORS, N, grid=CDIV), {}),
    (ADD + WRAPPER, contract(*TENSORS, N, BLOCK, grid=CDIV), {}),
]


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize(("source", "io", "metadata"), CASES)
def test_interpreted(tmp_path: Path, source: str, io: dict[str, Any], metadata: dict[str, Any]) -> None:
    given = of(source, io, **metadata)
    executable = loaded(given, tmp_path)
    assert executable.entry == "kernel add"
    args = values(given.io)
    assert executable.call(args) is None
    named = dict(zip([argument.name for argument in given.io.args], args, strict=True))
    torch.testing.assert_close(named["output"], named["x"] + named["y"])
    assert built(given, tmp_path).facts["interpreted"] is True


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize(
    ("line", "status", "says"),
    [
        ("triton.compile(SOURCE)", Status.UNSUPPORTED, "no GPU, and the source asks for one"),
        (
            "triton.compile(SOURCE, target=triton.backends.compiler.GPUTarget('cuda', 90, 32))",
            Status.UNSUPPORTED,
            "no GPU, and Triton's interpreter",
        ),
        ("add.cache_keys", Status.COMPILE_ERROR, "no attribute 'cache_keys'"),
    ],
)
def test_a_compiler_called_at_import_needs_a_gpu(line: str, status: Status, says: str, tmp_path: Path) -> None:
    signature = (
        "{'x_ptr': '*fp32', 'y_ptr': '*fp32', 'output_ptr': '*fp32', 'n_elements': 'i32', 'BLOCK_SIZE': 'constexpr'}"
    )
    source = f"SOURCE = triton.compiler.ASTSource(add, {signature}, {{'BLOCK_SIZE': 256}})"
    fault = refusal(of(f"import triton.backends.compiler\n{ADD}{WRAPPER}\n{source}\n{line}\n", None), tmp_path)
    assert fault.status is status and says in fault.message


@pytest.mark.usefixtures("interpreter")
def test_scalars_may_change_between_calls(tmp_path: Path) -> None:
    given = of(ADD, contract(*TENSORS, N, BLOCK, grid=CDIV))
    executable = loaded(given, tmp_path)
    x, y, output, _, block = values(given.io)
    executable.call([x, y, output, 300, block])
    assert torch.equal(output[:300], (x + y)[:300]) and not output[300:].any()


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize(
    ("io", "metadata"),
    [(contract(*TENSORS[:2]), {}), (contract(*TENSORS[:2], grid=4), {"function_name": "run"}),
     (contract(*TENSORS[:2], grid=4), {"kernel_name": "run"})],
)  # fmt: skip
def test_a_python_function_that_launches(tmp_path: Path, io: dict[str, Any], metadata: dict[str, Any]) -> None:
    given = of(ADD + WRAPPER, io, **metadata)
    executable = loaded(given, tmp_path)
    assert executable.entry == "function run"
    x, y = values(given.io)
    torch.testing.assert_close(executable.call([x, y]), x + y)


FN = WRAPPER.replace("def run", "def kernel_fn")
DECORATED = FN.replace("def kernel_fn", "@torch.no_grad()\ndef kernel_fn")
KERNEL_FN = ADD.replace("def add", "def kernel_fn")


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize("source", [ADD + FN, FN + ADD, MUL + ADD + FN, ADD + DECORATED, ADD + WRAPPER + FN])
def test_kernel_fn_beside_the_kernels_needs_no_contract(tmp_path: Path, source: str) -> None:
    x, y = torch.randn(1000), torch.randn(1000)
    executable = loaded(of(source, None), tmp_path)
    assert executable.entry == "function kernel_fn"
    torch.testing.assert_close(executable.call([x, y]), x + y)
    KernelSchema().load({"source_code": source, "kernel_type": "triton"})


IN_A_CLASS = f"class Kernels:\n    pass\n{TUNED}Kernels.add = add\ndel add\n" + FN.replace("add[(", "Kernels.add[(")


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize("language", ["triton", "torch"])
@pytest.mark.parametrize("source", [TUNED + FN, IN_A_CLASS])
def test_an_autotuned_kernel_is_not_measured_by_an_interpreter_wherever_it_is(
    tmp_path: Path, source: str, language: str
) -> None:
    x, y = torch.randn(1000), torch.randn(1000)
    source = HEAD + source.replace(", BLOCK_SIZE=256", "").replace("256),)", "128),)")
    executable = loaded(kernel(source, language), tmp_path)
    torch.testing.assert_close(executable.call([x, y]), x + y)


@pytest.mark.usefixtures("interpreter")
def test_a_python_function_may_be_named_as_a_kernel_is(tmp_path: Path) -> None:
    KernelSchema().load({"source_code": ADD + WRAPPER, "kernel_type": "triton", "metadata": {"kernel_name": "run"}})
    assert loaded(of(ADD + WRAPPER, None, kernel_name="run"), tmp_path).entry == "function run"
    with pytest.raises(ValidationError, match="is missing"):
        KernelSchema().load({"source_code": ADD + WRAPPER, "kernel_type": "triton", "metadata": {"kernel_name": "add"}})


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize("source", [ADD, KERNEL_FN, TUNED.replace("def add", "def kernel_fn")])
def test_the_door_and_the_backend_agree_that_a_bare_kernel_needs_one(tmp_path: Path, source: str) -> None:
    with pytest.raises(ValidationError, match="call that function kernel_fn, or name it in metadata"):
        KernelSchema().load({"source_code": source, "kernel_type": "triton"})
    assert "needs an IO contract" in refusal(of(source, None), tmp_path).message
    if source is KERNEL_FN:
        given = of(source, contract(*TENSORS, N, BLOCK))
        assert loaded(given, tmp_path).entry == "kernel kernel_fn"


SIGNATURE = "add(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE)"
REFUSED = [
    (ADD, contract(*TENSORS, N, BLOCK), {"kernel_name": "nope"}, Status.COMPILE_ERROR, "Kernel 'nope' not found"),
    (ADD, contract(*TENSORS, N, BLOCK), {"kernel_name": "nope"}, Status.COMPILE_ERROR, "source has: helper, add."),
    ("x = 1", contract(*TENSORS), {}, Status.COMPILE_ERROR, "no @triton.jit kernel"),
    ("def f(:", contract(*TENSORS), {}, Status.COMPILE_ERROR, "SyntaxError"),
    (ADD, None, {}, Status.CONTRACT_MISMATCH, "kernel add needs an IO contract"),
    (ADD, contract(*TENSORS, N), {}, Status.CONTRACT_MISMATCH, "no argument is given for BLOCK_SIZE"),
    (ADD, contract(*TENSORS, N, BLOCK, N), {}, Status.CONTRACT_MISMATCH, SIGNATURE),
    (TUNED, contract(*TENSORS, N, BLOCK), {}, Status.CONTRACT_MISMATCH, "leave it out"),
    (ADD, contract(*TENSORS, N, BLOCK, grid="m"), {}, Status.CONTRACT_MISMATCH, "'m' is no scalar argument"),
    (ADD, contract(*TENSORS, N, BLOCK, grid="n_elements * 0"), {}, Status.RUNTIME_ERROR, "at least 1"),
]  # fmt: skip


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize(("source", "io", "metadata", "status", "says"), REFUSED)
def test_refused(
    tmp_path: Path, source: str, io: dict[str, Any] | None, metadata: dict[str, Any], status: Status, says: str
) -> None:
    fault = refusal(of(source, io, **metadata), tmp_path)
    assert fault.status is status and says in fault.message


@pytest.mark.usefixtures("interpreter")
def test_an_error_inside_the_kernel_names_its_line(tmp_path: Path) -> None:
    given = of(ADD.replace("x * 1.0", "x * nope"), contract(*TENSORS, N, BLOCK, grid=4))
    executable = loaded(given, tmp_path)
    with pytest.raises(KernelFault) as caught:
        executable.call(values(given.io))
    assert caught.value.status is Status.RUNTIME_ERROR and "return x * nope" in caught.value.log


def ahead(source: str, io: dict[str, Any], folder: Path) -> Artifact:
    return built(of(source, io), folder, H200)


def test_compiled_ahead_for_a_gpu_that_is_not_here(own_cache: Path, tmp_path: Path) -> None:
    facts = ahead(ADD, contract(*TENSORS, N, BLOCK, grid=CDIV, num_warps=8, num_stages=2), tmp_path).facts
    assert facts["compiled_ahead"] and not facts["interpreted"]
    (variant,) = facts["variants"]
    assert (variant["num_warps"], variant["num_stages"], variant["shared_bytes"]) == (8, 2, 0)
    assert 0 < variant["registers"] <= 64 and variant["local_bytes"] == 0
    assert (variant["occupancy"], variant["limited_by"]) == (1.0, "warps")
    assert list(own_cache.glob("*/add.cubin"))


def test_every_configuration_is_compiled_ahead(own_cache: Path, tmp_path: Path) -> None:
    facts = ahead(TUNED, contract(*TENSORS, N, grid=CDIV), tmp_path).facts
    assert [variant["num_warps"] for variant in facts["variants"]] == [2, 8]
    assert len(list(own_cache.glob("*/add.cubin"))) == 2


@pytest.mark.usefixtures("own_cache")
def test_compile_errors_come_from_the_builder(tmp_path: Path) -> None:
    tiny = [tensor(name, 8, 8, role=role) for name, role in (("a", "input"), ("b", "input"), ("c", "output"))]
    fault = refusal(of(DOT, contract(*tiny, scalar("BLOCK", 8, meta=True), grid=1)), tmp_path, H200)
    assert fault.status is Status.COMPILE_ERROR and "K >= 16" in fault.message and "tl.dot" in fault.log
    fault = refusal(of(ADD.replace("x * 1.0", "x * nope"), contract(*TENSORS, N, BLOCK, grid=4)), tmp_path, H200)
    assert "nope is not defined" in fault.message and "return x * nope" in fault.log
    masked = ADD.replace("tl.store(output_ptr + offsets, ", "tl.atomic_add(output_ptr, 0.0, tl.load(x_ptr)) #")
    fault = refusal(of(masked, contract(*TENSORS, N, BLOCK, grid=4)), tmp_path, H200)
    assert fault.status is Status.COMPILE_ERROR and "must be 1-bit" in fault.message
    assert " of the source: `tl.atomic_add(output_ptr, 0.0, " in fault.message


@pytest.mark.usefixtures("own_cache")
def test_what_cannot_be_compiled_ahead_is_left_to_the_first_call(tmp_path: Path) -> None:
    asks = ADD.replace(
        "\n@triton.jit\ndef add", "\n@triton.heuristics({'BLOCK_SIZE': lambda a: 1 // 0})\n@triton.jit\ndef add"
    )
    facts = ahead(asks, contract(*TENSORS, N, grid=4), tmp_path).facts
    assert facts["compiled_ahead"] is False and "ZeroDivisionError" in facts["notes"][0]


OPTIONAL = """
@triton.jit
def add(x_ptr, BLOCK: tl.constexpr, bias_ptr, output_ptr, n_elements):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    if bias_ptr is not None:
        x += tl.load(bias_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, x, mask=mask)
"""
NO_BIAS = {"name": "bias", "type": "none"}
"""A pointer that the kernel may do without."""


@pytest.mark.parametrize("bias", [NO_BIAS, tensor("bias", 1000)])
def test_a_pointer_may_be_none_and_a_constexpr_anywhere(
    tmp_path: Path, interpreter: None, bias: dict[str, Any]
) -> None:
    x, _, output = TENSORS
    given = of(OPTIONAL, contract(x, scalar("BLOCK", 256, meta=True), bias, output, N, grid="cdiv(n_elements, BLOCK)"))
    args = values(given.io)
    loaded(given, tmp_path).call(args)
    torch.testing.assert_close(args[3], args[0] if bias is NO_BIAS else args[0] + args[2])


def test_a_kernel_without_a_pointer_is_compiled_ahead(tmp_path: Path, own_cache: Path) -> None:
    x, _, output = TENSORS
    args = contract(x, scalar("BLOCK", 256, meta=True), NO_BIAS, output, N, grid="cdiv(n_elements, BLOCK)")
    facts = built(of(OPTIONAL, args), tmp_path, H200).facts
    assert facts["variants"], facts
