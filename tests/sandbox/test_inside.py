"""What honest kernels need works inside: every type is judged as outside of a sandbox, below root and below a user."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from domain.paths import ROOT
from tests.conftest import die_with_parent

MODES = ("root", "user") if os.geteuid() == 0 else ("user",)

QUICK = ("torch-layer-norm", "triton-vector-add", "cuda-saxpy", "multi-kernel-rms-norm")
COMPILED = ("torch-cuda-scaled-relu",)
"""By load_inline: ninja, a C++ compiler, nvcc."""


def verdicts(mode: str, names: tuple[str, ...]) -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.sandbox.run_examples_as", mode, *names],
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=die_with_parent,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return told


def check(mode: str, names: tuple[str, ...]) -> None:
    told = verdicts(mode, names)
    assert set(told) == set(names)
    for name, (status, message, right) in told.items():
        assert status == right, f"{name}: {status}, {message}"


@pytest.mark.parametrize("mode", MODES)
def test_every_type_is_judged(mode: str) -> None:
    check(mode, QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_an_extension_is_compiled(mode: str) -> None:
    check(mode, COMPILED)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
def test_cuda_triton_nvrtc_and_load_inline_work_on_the_gpu(mode: str) -> None:
    check(mode, QUICK + COMPILED)
