"""Each language on a GPU: a call in a runner's process is right, and takes what the builder compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from backends.base import Target
from backends.languages.registry import cache_variables
from domain.paths import ROOT
from tests.backends.extensions.test_jit_build import in_builder
from tests.backends.languages.sources import SOURCES, installed
from tests.backends.languages.test_compiled_ahead import LANGUAGES, stored

RUN = """
import json, pathlib, sys
import torch
from backends.base import Artifact, Target
from backends.registry import backend
from domain.kernel import Kernel
wire, folder, device, arch, facts, expected = json.load(sys.stdin)
kernel = Kernel.from_wire(wire)
executable = backend(kernel.kernel_type).load(
    kernel, pathlib.Path(folder), Target(device, arch), Artifact(facts), None, 0
)
args = executable.own_inputs(0)
if args is None:
    x, y, out = (torch.randn(4000, device=device) for _ in range(3))
    args = [x, y, out, 2.5, 4000, 1024]
output = executable.call(args)
torch.testing.assert_close(args[2] if output is None else output, eval(expected), rtol=1e-4, atol=1e-5)
"""
EXPECTED = {name: "2.5 * args[0] + args[1]" for name in LANGUAGES} | {"helion": "torch.softmax(args[0], -1)"}


def call(name: str, folder: Path, target: Target) -> None:
    """Builds the language's example as a builder does, and calls it once in a process of its own. Raises if wrong."""
    given = SOURCES[name].kernel()
    facts = in_builder(given, folder, target).facts
    work = [given.to_wire(), str(folder), target.device, target.arch, facts, EXPECTED[name]]
    caches = {"TRITON_CACHE_DIR": str(folder / "triton"), **cache_variables(folder)}
    interpreted = {} if target.is_cuda else {"TRITON_INTERPRET": "1"}
    subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(work),
        env={**os.environ, "HOME": str(folder), **caches, **interpreted},
        text=True,
        check=True,
        cwd=ROOT,
    )


@pytest.mark.gpu
@pytest.mark.parametrize("name", LANGUAGES)
def test_a_call_is_right_and_compiles_nothing(name: str, tmp_path: Path) -> None:
    installed(name)
    major, minor = torch.cuda.get_device_capability()
    target = Target("cuda:0", f"sm_{major}{minor}")
    folder = tmp_path / "job"
    folder.mkdir()
    in_builder(SOURCES[name].kernel(), folder, target)
    ahead = stored(folder)
    call(name, folder, target)
    assert ahead and stored(folder) == ahead


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_helion_runs_in_the_interpreter(tmp_path: Path) -> None:
    installed("helion")
    call("helion", tmp_path, Target("cpu", None))
