"""What a build left is moved, and removed, by a worker that has no more rights than it is deployed with."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from domain.fault import InfrastructureFault, KernelFault
from domain.paths import ROOT
from domain.result import Status
from sandbox.isolation import scratch_dir
from tasks.builds.relocate import move

AS_DEPLOYED = """
import sys
from pathlib import Path
from sandbox.isolation import uid as identity
from tests.sandbox.container import DEPLOYED_CAPABILITIES

folder, name = Path(sys.argv[1]), sys.argv[2]
identity.keep_only(DEPLOYED_CAPABILITIES)
if name == "move":
    from tasks.builds.relocate import move
    move(folder / "built", folder / "waiting")
else:
    from sandbox.isolation.scratch_dir import remove
    remove(folder / "built")
"""
BUILDERS, RUNNERS = 1_500_000_001, 1_500_000_002
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="submissions have users of their own below root only")


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """Two folders: of a build, with a file and a folder that it has closed, and of the runner that waits for it."""
    for name in ("built", "waiting"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "built" / "kernel.py").write_text("code")
    closed = tmp_path / "built" / "closed"
    closed.mkdir()
    (closed / "file").write_text("more")
    closed.chmod(0o500)
    return tmp_path


def own_users(folder: Path, mode: int) -> None:
    """Everything is the builder's, the other folder the runner's; `mode` is that of the build's folders."""
    for path in (folder / "built", *(folder / "built").rglob("*")):
        os.chown(path, BUILDERS, BUILDERS)
    for path in (folder / "built", folder / "built" / "closed"):
        path.chmod(mode)
    os.chown(folder / "waiting", RUNNERS, RUNNERS)


def as_deployed(folder: Path, what: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AS_DEPLOYED, str(folder), what],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@needs_root
@pytest.mark.parametrize("mode", [0o700, 0o500, 0o1700], ids=["open", "closed", "sticky"])
def test_the_five_capabilities_move_what_another_user_built(built: Path, mode: int) -> None:
    own_users(built, mode)
    as_deployed(built, "move")
    moved = built / "waiting" / "closed" / "file"
    assert moved.read_text() == "more"
    assert moved.stat().st_uid == RUNNERS
    assert stat.S_IMODE(moved.parent.stat().st_mode) == mode
    assert (built / "built").stat().st_uid == BUILDERS, "by its owner it is known whose shared memory goes with it"


@needs_root
@pytest.mark.parametrize("mode", [0o700, 0o500, 0o1700], ids=["open", "closed", "sticky"])
def test_the_five_capabilities_remove_what_another_user_built(built: Path, mode: int) -> None:
    own_users(built, mode)
    as_deployed(built, "remove")
    assert not (built / "built").exists()


@needs_root
def test_a_removed_link_leaves_the_other_name_of_a_file_to_its_owner(built: Path) -> None:
    own_users(built, 0o1700)
    other = built / "others file"
    other.touch()
    os.chown(other, RUNNERS, RUNNERS)
    os.link(other, built / "built" / "closed" / "link")
    as_deployed(built, "remove")
    assert not (built / "built").exists()
    assert other.stat().st_uid == RUNNERS


def test_a_folder_that_its_owner_has_closed_is_moved_and_stays_closed(built: Path) -> None:
    (built / "built").chmod(0o500)
    move(built / "built", built / "waiting")
    assert (built / "waiting" / "closed" / "file").read_text() == "more"
    assert stat.S_IMODE((built / "waiting" / "closed").stat().st_mode) == 0o500
    assert list((built / "built").iterdir()) == []


def test_what_the_worker_cannot_do_is_no_verdict_about_the_kernel(built: Path) -> None:
    with pytest.raises(InfrastructureFault, match="FileNotFoundError"):
        move(built / "built", built / "never made")


def test_more_than_anybody_should_read_is_the_kernels_doing(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_dir, "MAX_ENTRIES", 2)
    with pytest.raises(KernelFault, match="more than 2 files") as caught:
        move(built / "built", built / "waiting")
    assert caught.value.status is Status.UNSUPPORTED
