"""What a build left, in the folder of the runner that waited for it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from domain.kernel import Kernel, KernelType
from tasks.runtime.kernel_run import Contender
from tasks.runtime.runner_pool import Standby


@pytest.fixture
def built(tmp_path: Path) -> Contender:
    """Sealed, and its runner waits in another folder, in which there is something already."""
    folder, waiting = tmp_path / "built", tmp_path / "waiting"
    for each in (folder, waiting / "triton"):
        each.mkdir(parents=True)
    (folder / "kernel.py").write_text("code")
    (folder / "triton" / "x").mkdir(parents=True)
    (folder / "triton" / "x" / "__grp__k.json").write_text(f'"{folder}/triton/x/k.cubin"')
    made = Contender("candidate", Kernel("code", KernelType.TORCH), folder)
    made.standby = Standby(cast(Any, SimpleNamespace()), waiting)
    made.seal()
    return made


def test_it_is_moved_and_sealed_where_it_lies(built: Contender) -> None:
    before = built.folder
    built.settle()
    assert (built.folder / "kernel.py").read_text() == "code"
    assert (built.folder / "triton" / "x" / "__grp__k.json").read_text() == f'"{built.folder}/triton/x/k.cubin"'
    assert not list(before.iterdir())
    assert built.untouched


def test_what_was_changed_after_the_build_stays_changed(built: Contender) -> None:
    (built.folder / "kernel.py").write_text("other code")
    built.settle()
    assert not built.untouched
