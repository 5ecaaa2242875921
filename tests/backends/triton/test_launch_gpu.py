"""Kernel type `triton` on a GPU: direct launches, with the code that the builder compiled ahead."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from backends.base import Target
from domain.fault import KernelFault
from domain.result import Status
from tests.backends.contracts import contract, scalar, tensor, values
from tests.backends.extensions.test_jit_build import ROOT, in_builder
from tests.backends.loading import loaded
from tests.backends.triton.test_backend import ADD, BLOCK, CASES, DOT, TENSORS, WRAPPER, N, of

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    return tmp_path / "triton"


def here() -> Target:
    major, minor = torch.cuda.get_device_capability()
    return Target("cuda", f"sm_{major}{minor}")


@pytest.mark.parametrize(("source", "io", "metadata"), CASES)
def test_add(tmp_path: Path, own_cache: Path, source: str, io: dict[str, Any], metadata: dict[str, Any]) -> None:
    given = of(source, io, **metadata)
    executable = loaded(given, tmp_path, here())
    ahead = sorted(own_cache.glob("*/add.cubin"))
    args = values(given.io, "cuda")
    executable.call(args)
    named = dict(zip([argument.name for argument in given.io.args], args, strict=True))
    torch.testing.assert_close(named["output"], named["x"] + named["y"])
    # The call compiled nothing more: it took what the builder had left.
    assert ahead and sorted(own_cache.glob("*/add.cubin")) == ahead


IN_A_RUNNER = """
import json, sys
import torch
from pathlib import Path
from backends.base import NO_REFERENCE, Artifact, Target
from backends.registry import backend
from domain.kernel import Kernel
from tests.backends.contracts import values
given, folder, arch = json.load(sys.stdin)
kernel = Kernel.from_wire(given)
args = values(kernel.io, "cuda")
target = Target("cuda", arch)
backend(kernel.kernel_type).load(kernel, Path(folder), target, Artifact(), NO_REFERENCE, 7).call(args)
torch.cuda.synchronize()
"""


def test_the_first_call_of_a_runner_compiles_nothing(tmp_path: Path, own_cache: Path) -> None:
    given = of(ADD, contract(*TENSORS, N, BLOCK, grid=4))
    artifact = in_builder(given, tmp_path, here())
    assert not any("launcher" in note for note in artifact.facts["notes"])
    ahead = sorted(own_cache.rglob("*"))
    subprocess.run(
        [sys.executable, "-c", IN_A_RUNNER],
        input=json.dumps([given.to_wire(), str(tmp_path), here().arch]),
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert ahead
    assert sorted(own_cache.rglob("*")) == ahead


def test_num_warps_reach_the_launch(tmp_path: Path) -> None:
    source = """
@triton.jit
def warps(output_ptr, N: tl.constexpr):
    tl.store(output_ptr, tl.extra.cuda.num_warps())
"""
    for num_warps in (1, 8):
        given = of(source, contract(tensor("o", 1, dtype="int32", role="output"), scalar("N", 1), num_warps=num_warps))
        args = values(given.io, "cuda")
        loaded(given, tmp_path, here()).call(args)
        assert args[0].item() == num_warps


def test_a_wrapper_launches_its_own(tmp_path: Path) -> None:
    given = of(ADD + WRAPPER, contract(*TENSORS[:2]))
    x, y = values(given.io, "cuda")
    torch.testing.assert_close(loaded(given, tmp_path, here()).call([x, y]), x + y)


def test_too_much_shared_memory_says_so(tmp_path: Path) -> None:
    big = [tensor(name, 256, 256, role=role) for name, role in (("a", "input"), ("b", "input"), ("c", "output"))]
    given = of(DOT, contract(*big, scalar("BLOCK", 256, meta=True), grid=1))
    executable = loaded(given, tmp_path, here())
    with pytest.raises(KernelFault) as caught:
        executable.call(values(given.io, "cuda"))
    assert caught.value.status is Status.COMPILE_ERROR and "shared memory" in caught.value.message


def test_a_tensor_that_is_not_aligned(tmp_path: Path) -> None:
    given = of(ADD, contract(*TENSORS, N, BLOCK, grid=4))
    executable = loaded(given, tmp_path, here())
    _, y, output, n, block = values(given.io, "cuda")
    odd = torch.randn(1001, device="cuda")[1:]
    executable.call([odd, y, output, n, block])
    torch.testing.assert_close(output, odd + y)
