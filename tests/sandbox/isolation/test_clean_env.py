"""What a runner's process finds around it: the same for every submission, whatever it was asked before."""

from __future__ import annotations

import getpass
import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from backends.base import Artifact
from domain.kernel import Kernel, KernelType
from sandbox.isolation.clean_env import clean_environment
from sandbox.supervisor.session import Session

# Temporaries of 1 MB, several at a time, as in a kernel of several steps.
FAULTS = """
import resource, torch
def get_inputs():
    return [torch.randn(256, 1024)]
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def kernel_fn(x):
    torch.tanh(x) * torch.sigmoid(x) + x.exp()
    before = faults()
    for _ in range(50):
        torch.tanh(x) * torch.sigmoid(x) + x.exp()
    return faults() - before
"""


def test_temporaries_cost_no_pages_whoever_has_freed_large_blocks(
    session: Callable[..., Session], folder: Path
) -> None:
    faults = []
    for draws in (True, False):
        runner = session()
        runner.load(Kernel(FAULTS, KernelType.TORCH, None, {"function_name": "kernel_fn"}), Artifact(), None, 0)
        if draws:
            runner.inputs(list(range(20)), infer=False)
        faults.append(int(runner.probe([torch.randn(256, 1024)], 3).outputs[0].item()))
    assert max(faults) < 1000, faults  # Of fifty runs; mapped anew, those of one take up to 768.


def test_libraries_find_a_user_name_where_the_system_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nameless(_: int) -> pwd.struct_passwd:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nameless)
    for name in set(os.environ):
        monkeypatch.delenv(name)
    for name, value in clean_environment(tmp_path, interpret=False).items():
        monkeypatch.setenv(name, value)
    assert getpass.getuser() == "runner"


IMPORTED_BEFORE_THE_FORK = """
import os, sys
import torch._inductor.codecache
os.environ["TORCHINDUCTOR_CACHE_DIR"] = sys.argv[1]
print(torch.compile(torch.sin)(torch.zeros(8)).sum().item())
"""


def test_inductor_stores_nothing_in_the_folder_that_it_was_imported_with(tmp_path: Path) -> None:
    zygote, runner = tmp_path / "zygote", tmp_path / "runner"
    zygote.mkdir()
    command = [sys.executable, "-c", IMPORTED_BEFORE_THE_FORK, str(runner)]
    told = subprocess.run(
        command, env=clean_environment(zygote, interpret=True), capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "0.0" and list(runner.iterdir())
    assert not [path for path in zygote.rglob("*") if path.is_file()]
