"""Each language on a GPU: a call in a runner's process takes what the builder compiled; right programs are right."""

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
from domain.kernel import Kernel
from domain.paths import ROOT
from tests.backends.extensions.test_jit_build import in_builder
from tests.backends.languages.programs import PROGRAMS, TASKS, Program
from tests.backends.languages.sources import SOURCES, installed
from tests.backends.languages.test_compiled_ahead import stored

RUN = """
import json, pathlib, sys
import torch
from backends.base import NO_REFERENCE, Artifact, Target
from backends.registry import backend
from domain.kernel import Kernel
wire, folder, device, arch, facts, expected = json.load(sys.stdin)
kernel = Kernel.from_wire(wire)
executable = backend(kernel.kernel_type).load(
    kernel, pathlib.Path(folder), Target(device, arch), Artifact(facts), NO_REFERENCE, 0
)
args = executable.own_inputs(0)
if args is None:
    x, y, out = (torch.randn(4000, device=device) for _ in range(3))
    args = [x, y, out, 2.5, 4000, 1024]
output = executable.call(args)
output = (args[2] if output is None else output).double()
args = [value.double() if torch.is_tensor(value) else value for value in args]
print(torch.allclose(output, eval(expected), rtol=2e-3, atol=1e-4))
"""
EXPECTED = {name: "2.5 * args[0] + args[1]" for name in SOURCES} | {"helion": "torch.softmax(args[0], -1)"}


def is_right(given: Kernel, expected: str, folder: Path, target: Target) -> bool:
    """Builds a kernel as a builder does, calls it once in a process of its own, and compares its output."""
    facts = in_builder(given, folder, target).facts
    work = [given.to_wire(), str(folder), target.device, target.arch, facts, expected]
    caches = {"TRITON_CACHE_DIR": str(folder / "triton"), **cache_variables(folder)}
    interpreted = {} if target.is_cuda else {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(work),
        env={**os.environ, "HOME": str(folder), **caches, **interpreted},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return done.stdout.splitlines()[-1] == "True"


def is_right_on_the_card(given: Kernel, expected: str, folder: Path) -> bool:
    """The same on the GPU, where the call has to find all that it needs in the build."""
    major, minor = torch.cuda.get_device_capability()
    target = Target("cuda:0", f"sm_{major}{minor}")
    in_builder(given, folder, target)
    ahead = stored(folder)
    right = is_right(given, expected, folder, target)
    assert ahead and stored(folder) == ahead
    return right


@pytest.mark.gpu
@pytest.mark.parametrize("name", SOURCES)
def test_an_example_is_right_and_compiles_nothing(name: str, tmp_path: Path) -> None:
    installed(name)
    assert is_right_on_the_card(SOURCES[name].kernel(), EXPECTED[name], tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong"])
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_a_program_is_as_it_was_made_and_compiles_nothing(program: Program, wrong: bool, tmp_path: Path) -> None:
    installed(program.language)
    given = program.kernel(wrong=wrong)
    assert is_right_on_the_card(given, TASKS[program.task].expected, tmp_path) is not wrong


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_helion_runs_in_the_interpreter(tmp_path: Path) -> None:
    installed("helion")
    assert is_right(SOURCES["helion"].kernel(), EXPECTED["helion"], tmp_path, Target("cpu", None))
