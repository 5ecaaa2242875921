"""What a build left, in the folder of the runner that waited for it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from domain.kernel import Kernel, KernelType
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.runner_pool import PooledRunner


@pytest.fixture
def built(tmp_path: Path) -> KernelRun:
    """Sealed, and its runner waits in another folder, in which there is something already."""
    folder, waiting = tmp_path / "built", tmp_path / "waiting"
    for each in (folder, waiting / "triton"):
        each.mkdir(parents=True)
    (folder / "kernel.py").write_text("code")
    (folder / "triton" / "x").mkdir(parents=True)
    (folder / "triton" / "x" / "__grp__k.json").write_text(f'"{folder}/triton/x/k.cubin"')
    made = KernelRun("candidate", Kernel("code", KernelType.TORCH), folder)
    made.take_runner(PooledRunner(cast(Any, SimpleNamespace()), waiting))
    made.seal()
    return made


def test_it_is_moved_and_sealed_where_it_lies(built: KernelRun) -> None:
    before = built.folder
    built.move_into_runner_dir()
    assert (built.folder / "kernel.py").read_text() == "code"
    assert (built.folder / "triton" / "x" / "__grp__k.json").read_text() == f'"{built.folder}/triton/x/k.cubin"'
    assert not list(before.iterdir())
    assert built.is_unmodified


def test_what_the_runner_writes_before_it_has_the_submission_is_no_change_of_it(built: KernelRun) -> None:
    with built.written_by_own_runner():
        (built.folder / "cache").write_text("of the driver")
    assert built.is_unmodified


def test_a_change_before_the_runner_writes_still_shows(built: KernelRun) -> None:
    (built.folder / "kernel.py").write_text("other code")
    with built.written_by_own_runner():
        (built.folder / "cache").write_text("of the driver")
    assert not built.is_unmodified


def test_what_was_changed_after_the_build_stays_changed(built: KernelRun) -> None:
    (built.folder / "kernel.py").write_text("other code")
    built.move_into_runner_dir()
    assert not built.is_unmodified
