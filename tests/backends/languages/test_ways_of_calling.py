"""Ways in which published programs call a language: a builder compiles each, or says what is wrong with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backends.languages.registry import cache_variables
from domain.fault import KernelFault
from domain.kernel import Kernel, KernelType
from domain.paths import ROOT
from domain.result import Status
from tests.backends.extensions.test_jit_build import H200, in_builder, without_gpu
from tests.backends.languages.sources import installed
from tests.backends.languages.test_compiled_ahead import stored

DOUBLED = """
import tilelang
import tilelang.language as T
import torch

{decorator}
@tilelang.jit
def doubled(x, block: int = 64):
    n = {size}
    x: T.Tensor((n,), T.float32)
    y = T.empty((2 * n,), T.float32)
    with T.Kernel(T.ceildiv(n, block), threads=64) as at:
        for i in T.Parallel(block):
            y[at * block + i] = {value}
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return doubled(x)


def get_inputs():
    return [torch.randn(4096)]
"""
"""TileLang: the size of an output, a search for a configuration, and the value can be set."""

AT_IMPORT = """
import tilelang
import tilelang.language as T
import torch
from tilelang.carver.arch import driver

{before}
@T.prim_func
def doubled(x: T.Tensor((4096,), "float32"), y: T.Tensor((4096,), "float32")):
    with T.Kernel(32, threads=128) as at:
        for i in T.Parallel(128):
            y[at * 128 + i] = {value}

kernel = tilelang.compile(doubled, out_idx=[-1], target="cuda", execution_backend="{backend}")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return kernel(x)


def get_inputs():
    return [torch.randn(4096)]
"""
"""TileLang: a program that the import compiles, for a target without an architecture."""

SCALED = """
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor


class Scale:
    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=(1, 1, 1), block=(cute.size(x), 1, 1))

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        at, _, _ = cute.arch.thread_idx()
        y[at] = x[at] * 2.0


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        like = make_fake_compact_tensor(cutlass.Float32, (64,), stride_order=(0,))
        self.plain = cute.compile(Scale(), like, like)
        self.takes_torch = cute.compile(Scale(), like, like, options="--enable-tvm-ffi")

    def forward(self, x):
        y = torch.empty_like(x)
        self.takes_torch(x, y)
        return y


def get_inputs():
    return [torch.randn(64)]
"""
"""CuTe DSL: the constructor compiles an object of a class, for its own tensors and for torch's."""

LOOKED_UP = """
import torch, triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.jit
def filled(y, block: tl.constexpr):
    at = tl.arange(0, block)
    tl.store(y + at, libdevice.not_there(at))

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        filled[(1,)](y, 64)
        return y

def get_inputs():
    return [torch.randn(64)]
"""
"""Triton, and Gluon with it, looks such a name up before it compiles."""

LOAD = """
import pathlib, sys
from backends.base import NO_REFERENCE, Artifact, Target
from backends.registry import backend
from domain.kernel import Kernel, KernelType
kernel = Kernel(sys.stdin.read(), KernelType.CUTE_DSL)
serving, target = backend(kernel.kernel_type), Target("cpu", None)
for _ in range(2):  # A module of another name each time, as in a runner that is used again.
    serving.load(kernel, pathlib.Path(sys.argv[1]), target, Artifact({}), NO_REFERENCE, 0)
"""

LOOK_AGAIN = """
import torch
import tilelang.profiler.bench
from backends.languages import registry
modules = tilelang.utils.device, tilelang.profiler.bench, tilelang.profiler.torch_bench
print(tilelang.utils.device.IS_CUDA, tilelang.profiler.bench.device, *(module.Event is None for module in modules))
torch.cuda.is_available = lambda: True
registry.before_import("import tilelang")
print(tilelang.utils.device.IS_CUDA, tilelang.profiler.bench.device, *(module.Event is None for module in modules))
"""


def doubled(size: str = 'T.const("n")', value: str = "x[at * block + i]", decorator: str = "") -> Kernel:
    return Kernel(DOUBLED.format(size=size, value=value, decorator=decorator), KernelType.TILELANG)


def at_import(value: str = "x[at * 128 + i] * 2.0", before: str = "", backend: str = "tvm_ffi") -> Kernel:
    return Kernel(AT_IMPORT.format(value=value, before=before, backend=backend), KernelType.TILELANG)


def in_process(program: str, *args: str, source: str = "", **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program, *args],
        input=source,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return done.stdout.split()


@pytest.mark.parametrize("size", ['T.const("n")', 'T.dynamic("n")'], ids=["constant", "dynamic"])
def test_the_inputs_give_the_sizes_of_tilelangs_outputs(size: str, tmp_path: Path) -> None:
    installed("tilelang")
    told = in_builder(doubled(size), tmp_path, H200).facts["dry_run"]
    assert told == {"compiled": ["doubled"], "ended": "completed", "reason": None}


def test_tilelang_compiles_what_it_will_measure(tmp_path: Path) -> None:
    installed("tilelang")
    tuned = doubled(decorator='@tilelang.autotune(configs=[{"block": 64}])')
    told = in_builder(tuned, tmp_path, H200).facts["dry_run"]
    (ROOT / "autotuner.log").unlink()  # It is written to the working directory: in a service the job's folder.
    reason = "TileLang measures its configurations on the GPU"
    assert told == {"compiled": ["doubled"], "ended": "stopped", "reason": reason}


def test_what_nvcc_says_of_tilelangs_code_comes_first(tmp_path: Path) -> None:
    installed("tilelang")
    wrong = doubled(value='T.call_extern("float32", "not_there", x[at * block + i])')
    with pytest.raises(KernelFault, match=r'RuntimeError: .*error: identifier "not_there" is undefined') as caught:
        in_builder(wrong, tmp_path, H200)
    assert caught.value.status is Status.COMPILE_ERROR
    assert "(line 20 of the source: `return doubled(x)`)" in caught.value.message
    assert "#include" not in caught.value.message and "#include" in (caught.value.log or "")


def test_a_target_without_an_architecture_is_the_gpus(tmp_path: Path) -> None:
    installed("tilelang")
    asks = at_import(before='assert driver.get_num_sms() > 0, "a persistent kernel has a block for each"')
    told = in_builder(asks, tmp_path, H200).facts["dry_run"]
    assert told == {"compiled": ["doubled"], "ended": "completed", "reason": None}


@without_gpu
def test_a_target_without_an_architecture_asks_for_a_gpu(tmp_path: Path) -> None:
    installed("tilelang")
    with pytest.raises(KernelFault, match="this worker has no GPU, and the source asks for one") as caught:
        in_builder(at_import(), tmp_path)
    assert caught.value.status is Status.UNSUPPORTED


def test_what_nvcc_prints_for_tilelangs_libraries_is_told(tmp_path: Path) -> None:
    installed("tilelang")
    wrong = at_import('T.call_extern("float32", "not_there", x[at * 128 + i])', backend="cython")
    with pytest.raises(KernelFault, match=r'identifier "not_there" is undefined .line 14 of the source') as caught:
        in_builder(wrong, tmp_path, H200)
    assert caught.value.status is Status.COMPILE_ERROR


@pytest.mark.parametrize(
    ("nvcc", "lacks"),
    [
        (None, "bin/nvcc is missing"),
        ("echo 'k.cu:3:10: fatal error: cuda_fp8.h: No such file or directory'; exit 1", "cuda_fp8.h is missing"),
        ("echo 'sh: 1: cicc: not found'; exit 127", "cicc is missing"),
    ],
    ids=["nvcc", "a header", "a step"],
)
def test_tilelang_without_a_whole_toolkit_is_unsupported(
    nvcc: str | None, lacks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("tilelang")
    (tmp_path / "toolkit" / "bin").mkdir(parents=True)
    if nvcc is not None:
        compiler = tmp_path / "toolkit" / "bin" / "nvcc"
        compiler.write_text(f"#!/bin/sh\n{nvcc}\n")
        compiler.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    told = in_builder(doubled(), tmp_path, H200).facts["dry_run"]
    assert told["ended"] == "stopped" and "toolkit is incomplete" in told["reason"] and lacks in told["reason"]


def test_a_name_that_a_module_lacks_is_a_compile_error(tmp_path: Path) -> None:
    with pytest.raises(KernelFault, match=r"has no attribute 'not_there'.*line 14 of the source") as caught:
        in_builder(Kernel(LOOKED_UP, KernelType.TRITON), tmp_path, H200)
    assert caught.value.status is Status.COMPILE_ERROR


def test_a_run_finds_what_cute_dsl_compiled_in_the_builder(tmp_path: Path) -> None:
    installed("cute_dsl")
    told = in_builder(Kernel(SCALED, KernelType.CUTE_DSL), tmp_path, H200).facts["dry_run"]
    assert told["ended"] == "completed" and len(told["compiled"]) == 2, told
    ahead = stored(tmp_path)
    assert len([path for path in ahead if path.suffix == ".mlir"]) == 2
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "cute_dsl").rename(elsewhere / "cute_dsl")
    in_process(LOAD, str(elsewhere), source=SCALED, CUTE_DSL_ARCH="sm_90a", **cache_variables(elsewhere))
    assert stored(elsewhere) == ahead


def test_tilelang_sees_the_gpu_that_its_import_did_not() -> None:
    installed("tilelang")
    unseen, seen = ["False", "mps:0", *["True"] * 3], ["True", "cuda:0", *["False"] * 3]
    assert in_process(LOOK_AGAIN) == [*unseen, *seen]
