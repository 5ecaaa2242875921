"""torch.compile's kernels are compiled by a dry run, under the keys with which Inductor looks them up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from domain.kernel import Kernel
from domain.paths import ROOT
from tests.backends.extensions.test_jit_build import H200, in_builder
from tests.backends.loading import kernel

CARD = "NVIDIA H200"
with_cuda = pytest.mark.skipif(torch.version.cuda is None, reason="a torch without CUDA")

MODEL = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)
    def forward(self, x):
        return torch.softmax(torch.relu(self.linear(x)) * 2, -1).sum(0)
def get_inputs():
    return [torch.randn(32, 64)]
"""
REFERENCE = replace(kernel(MODEL), is_reference=True, under_compile=True)
CANDIDATE = kernel(
    MODEL.replace("def forward", "@torch.compile\n    def forward").replace("class Model", "class ModelNew")
)
RUN = """
import json, pathlib, sys, torch
from torch._dynamo.utils import counters
from backends.base import Artifact, Target
from backends.registry import backend
from domain.kernel import Kernel
wire, folder = json.load(sys.stdin)
given, target = Kernel.from_wire(wire), Target("cuda:0", "sm_90")
executable = backend(given.kernel_type).load(given, pathlib.Path(folder), target, Artifact(), None, 1)
executable.call(executable.own_inputs(1))
torch.cuda.synchronize()
print(json.dumps([counters["inductor"]["fxgraph_cache_hit"], counters["inductor"]["fxgraph_cache_miss"]]))
"""


def cached(folder: Path) -> set[str]:
    """The graphs and kernels that are there, by their keys."""
    return {path.name for pattern in ("inductor/fxgraph/*/*/*", "triton/*") for path in folder.glob(pattern)}


@with_cuda
@pytest.mark.slow
@pytest.mark.parametrize("given", [REFERENCE, CANDIDATE], ids=["reference", "candidate"])
def test_a_graph_is_compiled_once(given: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = tmp_path / "built"
    built.mkdir()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(built / "inductor"))
    told = in_builder(given, built, H200, card=CARD).facts["dry_run"]
    assert told == {"compiled": ["torch.compile"], "ended": "completed", "reason": None}
    there, moved = cached(built), built.rename(tmp_path / "moved")
    assert there and list(moved.glob("triton/*/*.cubin"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(moved / "inductor"))
    in_builder(given, moved, H200, card=CARD)
    assert cached(moved) == there


@with_cuda
@pytest.mark.slow
def test_what_takes_a_measurement_is_left_to_the_run(tmp_path: Path) -> None:
    tuned = replace(
        CANDIDATE, source_code=CANDIDATE.source_code.replace("@torch.compile", '@torch.compile(mode="max-autotune")')
    )
    told = in_builder(tuned, tmp_path, H200, card=CARD).facts["dry_run"]
    assert told == {"compiled": [], "ended": "completed", "reason": None} and not cached(tmp_path)


def test_without_the_cards_name_it_is_left_to_the_run(tmp_path: Path) -> None:
    told = in_builder(CANDIDATE, tmp_path, H200).facts["dry_run"]
    assert told == {"compiled": [], "ended": "completed", "reason": None} and not cached(tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("given", [REFERENCE, CANDIDATE], ids=["reference", "candidate"])
def test_a_card_finds_the_graph(given: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = torch.cuda.get_device_name()
    if name != CARD:
        pytest.skip(f"{name} is not {CARD}")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    in_builder(given, tmp_path, H200, card=CARD)
    there, told = cached(tmp_path), [given.to_wire(), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ},
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [1, 0]
    assert cached(tmp_path) == there
