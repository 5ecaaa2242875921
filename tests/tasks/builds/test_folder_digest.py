"""Whose fault it is that a build cannot be read: its maker's who closed it, or the worker's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from domain.fault import InfrastructureFault
from domain.kernel import Kernel, KernelType
from domain.paths import ROOT
from tasks.runtime.kernel_run import KernelRun

UNPRIVILEGED = 54_321
SEALED = """
import sys
from pathlib import Path
from domain.fault import InfrastructureFault, KernelFault
from domain.kernel import Kernel, KernelType
from sandbox.isolation import uid as identity
from tasks.runtime.kernel_run import KernelRun

identity.keep_only(0)
try:
    KernelRun("kernel", Kernel("", KernelType.TORCH), Path(sys.argv[1])).seal()
except (InfrastructureFault, KernelFault) as fault:
    print(type(fault).__name__, fault)
"""


def sealed_without_rights(folder: Path) -> str:
    """What sealing the build says to a worker that has no capability: to it, modes count."""
    done = subprocess.run(
        [sys.executable, "-c", SEALED, str(folder)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "built"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "file").write_text("code")
    return folder


def test_a_build_that_can_be_read_is_sealed(built: Path) -> None:
    assert sealed_without_rights(built) == ""


def test_a_file_that_its_maker_closed_is_the_kernels_fault(built: Path) -> None:
    (built / "sub" / "file").chmod(0o200)
    assert sealed_without_rights(built).startswith("KernelFault the build left a file that cannot be read")


def test_a_file_behind_a_folder_that_its_maker_closed_is_the_kernels_fault(built: Path) -> None:
    (built / "sub").chmod(0o400)
    assert sealed_without_rights(built).startswith("KernelFault the build left a file that cannot be read")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_a_file_that_the_worker_may_not_read_is_not_the_kernels_fault(built: Path) -> None:
    os.chown(built / "sub" / "file", UNPRIVILEGED, UNPRIVILEGED)
    (built / "sub" / "file").chmod(0o600)
    told = sealed_without_rights(built)
    assert told.startswith("InfrastructureFault what a build left cannot be read: PermissionError")


def test_a_folder_that_is_gone_is_not_the_kernels_fault(tmp_path: Path) -> None:
    kernel_run = KernelRun("kernel", Kernel("", KernelType.TORCH), tmp_path / "gone")
    with pytest.raises(InfrastructureFault, match="FileNotFoundError"):
        kernel_run.seal()
    with pytest.raises(InfrastructureFault, match="FileNotFoundError"):
        _ = kernel_run.is_unmodified
