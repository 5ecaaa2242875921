"""Triton kernels that Python launches are compiled by a dry run, under the keys with which a launch looks them up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from backends.base import Artifact
from backends.dry_run.example import UNKNOWN
from domain.fault import KernelFault
from domain.kernel import Kernel
from domain.paths import ROOT
from domain.result import Status
from tests.backends.extensions.test_jit_build import H200, in_builder
from tests.backends.loading import kernel

HEAD = """
import torch
import triton
import triton.language as tl
from torch import nn
"""
SCALED = """
@triton.jit
def scaled(x, y, n, by, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * by, mask=at < n)
"""
LAUNCHES = {
    "plain": """
def forward(x):
    y = torch.empty_like(x)
    scaled[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), 2.0, BLOCK=256)
    return y
""",
    "sizes of 1 and odd ones, an unaligned view": """
def forward(x):
    flat = x.view(-1)
    for n in (1, 15, 16):
        scaled[(1,)](flat[1:], flat, n, 3, BLOCK=16, num_warps=2)
    return x
""",
    "autotuned with heuristics and a hook": """
@triton.autotune(
    [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"], restore_value=["y"]
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned(x, y, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)
def forward(x):
    y = torch.empty_like(x)
    tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y
""",
    "on a stream, in a graph, with events, by the kernel's registers": """
def forward(x):
    y = torch.empty_like(x)
    device = torch.cuda.current_device()
    shared = triton.runtime.driver.active.utils.get_device_properties(device)["max_shared_mem"]
    with torch.cuda.device(x.device), torch.cuda.stream(torch.cuda.Stream()):
        kernel = scaled.warmup(x, y, x.numel(), 2.0, BLOCK=512, grid=(1,))
        kernel._init_handles()
        assert kernel.n_regs > 0 and kernel.metadata.shared <= shared
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        kernel[(1, 1, 1)](x, y, x.numel(), 2.0, 512)
        end.record()
    torch.cuda.synchronize()
    assert begin.elapsed_time(end) > 0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scaled[(1,)](x, y, x.numel(), 2.0, BLOCK=1024)
    graph.replay()
    return y
""",
    "in an operator of its own": """
@torch.library.custom_op("launched::once", mutates_args=())
def once(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    scaled[(1,)](x, y, x.numel(), 2.0, BLOCK=64)
    return y
@once.register_fake
def without_content(x):
    return torch.empty_like(x)
def forward(x):
    return once(x)
""",
    "for as many as the content says": """
def forward(x):
    chosen = torch.cat([x[x[:, 0] > 0], torch.masked_select(x, x > 0)[None, :33]])
    drawn = torch.rand(8, device=x.device, generator=torch.Generator(x.device).manual_seed(1))
    scaled[(1,)](chosen, chosen, 16 + len(drawn), len(x.unique().view(-1)) * 0.0, BLOCK=64)
    return x
""",
    "under torch.compile, with half precision": """
@torch.compile
def forward(x):
    if torch.cuda.get_device_capability()[0] >= 9:
        scaled[(1,)](x.half(), x, x.numel(), 2.0, BLOCK=32)
    return x
""",
}
CALLED = """
class ModelNew(nn.Module):
    def forward(self, x):
        return forward(x)
def get_inputs():
    return [torch.randn(64, 33)]
"""
KERNELS = {name: 3 if "sizes" in name else 2 if "tuned" in name or "graph" in name else 1 for name in LAUNCHES}

# The launch of a process that has tensors with memory, and no card: the driver alone is pretended.
LAUNCH = """
import pathlib, sys, torch, triton
from backends.dry_run.pretended_cuda import pretend_cuda
from backends.dry_run.pretended_triton import pretend_triton
from backends.source.module_loader import import_source
compiled = []
def around(name, compile_it):
    compiled.append(name)
    return compile_it()
pretend_triton("sm_90", pretend_cuda("sm_90", lambda reason: None), around)
torch.compile = lambda function: function
folder = pathlib.Path(sys.argv[1])
for _ in range(2):  # The runner may load a source several times, each time as another module.
    module = import_source(folder.joinpath("kernel.py").read_text(), folder)
module.ModelNew()(torch.randn(64, 33))
assert compiled
"""


def source_of(name: str) -> Kernel:
    return kernel(HEAD + SCALED + LAUNCHES[name] + CALLED)


def cubins(folder: Path) -> set[Path]:
    return set(folder.glob("triton/*/*.cubin"))


@pytest.mark.parametrize(
    "name", [name if name == "plain" else pytest.param(name, marks=pytest.mark.slow) for name in LAUNCHES]
)
def test_a_launch_finds_what_the_dry_run_compiled(name: str, tmp_path: Path) -> None:
    facts = in_builder(source_of(name), tmp_path, H200).facts
    there = cubins(tmp_path)
    assert facts["dry_run"] == {"compiled": facts["dry_run"]["compiled"], "ended": "completed", "reason": None}
    assert len(there) == KERNELS[name]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "triton")}
    subprocess.run([sys.executable, "-c", LAUNCH, str(tmp_path)], check=True, cwd=ROOT, env=environment)
    assert cubins(tmp_path) == there


@pytest.mark.gpu  # On a card, torch.compile makes kernels of its own.
@pytest.mark.parametrize("name", [name for name in LAUNCHES if "torch.compile" not in name])
def test_a_launch_on_a_card_finds_it_too(name: str, tmp_path: Path) -> None:
    in_builder(source_of(name), tmp_path, H200)
    there = cubins(tmp_path)
    run = "import pathlib, sys; from backends.source.module_loader import import_source\n"
    run += "folder = pathlib.Path(sys.argv[1])\n"
    run += "module = import_source(folder.joinpath('kernel.py').read_text(), folder)\n"
    run += "module.ModelNew()(module.get_inputs()[0].cuda())"
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "triton")}
    subprocess.run([sys.executable, "-c", run, str(tmp_path)], check=True, cwd=ROOT, env=environment)
    assert torch.cuda.get_device_capability() != (9, 0) or cubins(tmp_path) == there


def test_a_candidate_is_compiled_for_the_references_inputs(tmp_path: Path) -> None:
    reference = kernel(
        """
        class Model(nn.Module):
            def __init__(self, by):
                super().__init__()
            def forward(self, x, n):
                return x
        def get_inputs():
            return [torch.randn(8, 8).half().t(), 16]
        def get_init_inputs():
            return [2]
        """
    )
    (tmp_path / "reference").mkdir()
    (tmp_path / "candidate").mkdir()
    as_reference = Kernel.from_wire({**reference.to_wire(), "is_reference": True})
    example = in_builder(as_reference, tmp_path / "reference", H200).example
    assert json.dumps(example) == json.dumps(
        {
            "$": "tuple",
            "items": [
                {"$": "dict", "items": [["init", [2]], ["init_names", ["by"]], ["input_names", ["x", "n"]]]},
                [{"$": "tensor", "dtype": "float16", "shape": [8, 8], "strides": [1, 8], "offset": 0}, 16],
            ],
        }
    )
    candidate = kernel(
        f"""
{HEAD}{SCALED}
class ModelNew(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by
    def forward(self, x, n):
        assert x.stride() == (1, 8)
        scaled[(1,)](x, x, n, self.by, BLOCK=n)
        return x
"""
    )
    told = in_builder(candidate, tmp_path / "candidate", H200, example).facts["dry_run"]
    assert told == {"compiled": ["scaled"], "ended": "completed", "reason": None}
    (ttir,) = (tmp_path / "candidate").glob("triton/*/scaled.ttir")
    assert "f16" in ttir.read_text()


WRONG = SCALED.replace("tl.arange(0, BLOCK)", "tl.arange(0, BLOCK + 1)")


def test_a_kernel_that_does_not_compile_is_a_compile_error_of_the_build(tmp_path: Path) -> None:
    with pytest.raises(KernelFault, match="power of 2") as caught:
        in_builder(kernel(HEAD + WRONG + LAUNCHES["plain"] + CALLED), tmp_path, H200)
    assert caught.value.status is Status.COMPILE_ERROR and not caught.value.compiled


def test_a_grid_that_asks_for_an_unknown_argument_is_told_the_names(tmp_path: Path) -> None:
    launch = LAUNCHES["plain"].replace("(triton.cdiv(x.numel(), 256),)", "lambda meta: (meta['BLOCK_SIZE'],)")
    reason = in_builder(kernel(HEAD + SCALED + launch + CALLED), tmp_path, H200).facts["dry_run"]["reason"]
    assert "'BLOCK_SIZE' (the function gets the kernel's arguments by their names: x, y, n, by, BLOCK" in reason


REJECTED = {
    "a mask that is no truth value": (
        "tl.atomic_add(y, 0.0, tl.sum(tl.load(x + at)))",
        "must be 1-bit",
        r"\(line 10 of the source: `tl\.atomic_add\(y, 0\.0, ",
    ),
    "a function of Python's": ("tl.store(y + at, torch.relu(tl.load(x + at)))", "Unsupported function referenced", ""),
    "an unknown instruction": (
        'tl.store(y + at, tl.inline_asm_elementwise("bogus $0, $1;", "=f,f", [tl.load(x + at)], tl.float32, True, 1))',
        "PTXASError: ptxas .* Not a name of any known instruction: 'bogus'",
        "",
    ),
    "more shared memory than a block can have": (
        "at = x + at[:, None] * BLOCK + at[None, :]\n    tl.store(at, tl.dot(tl.load(at), tl.load(at)))",
        "OutOfResources: out of resource: shared memory, Required: 524288, Hardware limit: 232448",
        "",
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_what_any_stage_of_the_compiler_rejects_is_a_compile_error(name: str, tmp_path: Path) -> None:
    body, reason, line = REJECTED[name]
    source = SCALED.replace("tl.store(y + at, tl.load(x + at, mask=at < n) * by, mask=at < n)", body)
    with pytest.raises(KernelFault, match=f"calling class ModelNew: .*{reason}.*{line}") as caught:
        in_builder(kernel(HEAD + source + LAUNCHES["plain"] + CALLED), tmp_path, H200)
    assert caught.value.status is Status.COMPILE_ERROR


def test_an_option_that_the_compiler_refuses_is_a_compile_error(tmp_path: Path) -> None:
    launch = LAUNCHES["plain"].replace("BLOCK=256", "BLOCK=256, num_warps=3")
    with pytest.raises(KernelFault, match="num_warps must be a power of 2") as caught:
        in_builder(kernel(HEAD + SCALED + launch + CALLED), tmp_path, H200)
    assert caught.value.status is Status.COMPILE_ERROR


@pytest.mark.slow
def test_with_unknown_inputs_of_a_reference_it_is_left_to_the_run(tmp_path: Path) -> None:
    told = in_builder(kernel(HEAD + WRONG + LAUNCHES["plain"] + CALLED), tmp_path, H200, UNKNOWN).facts["dry_run"]
    assert told["ended"] == "stopped" and "not certain: the reference's inputs are unknown" in told["reason"]


@pytest.mark.slow
def test_an_error_that_the_source_catches_stays_caught(tmp_path: Path) -> None:
    caught = """
def forward(x):
    try:
        scaled[(1,)](x, x, x.numel(), 2.0, BLOCK=256)
    except Exception:
        pass
    return x
"""
    artifact: Artifact = in_builder(kernel(HEAD + WRONG + caught + CALLED), tmp_path, H200)
    assert artifact.facts["dry_run"] == {"compiled": [], "ended": "completed", "reason": None}


@pytest.mark.slow
def test_a_source_that_launches_while_it_is_imported_is_not_deferred(tmp_path: Path) -> None:
    given = kernel(HEAD + SCALED + LAUNCHES["plain"] + CALLED + "forward(torch.ones(8, device='cuda'))\n")
    artifact = in_builder(given, tmp_path, H200)
    assert artifact.deferred is None and artifact.facts["entry"] == "class ModelNew"
    assert artifact.facts["dry_run"]["ended"] == "completed" and len(cubins(tmp_path)) == 2


BACKWARD = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        y = torch.empty_like(x)
        scaled[(1,)](x, y, x.numel(), 2.0, BLOCK=64)
        return y * weight
    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx = torch.empty_like(x)
        scaled[(1,)](dy, dx, dx.numel(), 2.0, BLOCK=128)
        return dx * weight, (dy * x).sum(0)
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(33))
    def forward(self, x):
        return Scale.apply(x, self.weight)
def get_inputs():
    return [torch.randn(64, 33)]
"""


def test_a_backward_is_called_where_the_job_calls_it(tmp_path: Path) -> None:
    given = kernel(HEAD + SCALED + BACKWARD)
    for gradients, number in ((False, 1), (True, 2)):
        facts = in_builder(given, tmp_path, H200, gradients=gradients).facts
        assert facts["dry_run"] == {"compiled": facts["dry_run"]["compiled"], "ended": "completed", "reason": None}
        assert len(cubins(tmp_path)) == number


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["BLOCK=100", "BLOCK=missing", "BLOCK=next(t for t in iter(int, 1) if t)"])
def test_a_backward_that_fails_is_left_to_the_run(wrong: str, tmp_path: Path) -> None:
    given = kernel(HEAD + SCALED + BACKWARD.replace("BLOCK=128", wrong))
    told = in_builder(given, tmp_path, H200, gradients=True).facts["dry_run"]
    assert told["compiled"] == ["scaled"] and told["ended"] in ("stopped", "out_of_time") and told["reason"]
