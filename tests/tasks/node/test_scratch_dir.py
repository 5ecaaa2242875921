"""A pool child's folder: gone with its owner's end, or with the next owner's beginning where the end was a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from domain.paths import ROOT
from tasks.node.private_dir import UnsafeFolder, make_private
from tasks.node.scratch_dir import ScratchDir
from tests.conftest import die_with_parent
from tests.tasks.example_jobs import until

OWNER = """
import sys, time
from pathlib import Path
from tasks.node.scratch_dir import ScratchDir

folder = ScratchDir(Path(sys.argv[1]))
(folder.path / "job-1").mkdir()
(folder.path / "job-1" / "left").touch()
print(folder.path, flush=True)
time.sleep(600)
"""


def owner(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(parent)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
    assert process.stdout is not None
    with process.stdout:
        return process, Path(process.stdout.readline().strip())


def test_only_the_folders_of_dead_owners_are_removed(tmp_path: Path) -> None:
    (dead, left), (alive, kept) = owner(tmp_path), owner(tmp_path)
    dead.kill()
    dead.wait()
    assert (left / "job-1" / "left").exists()
    folder = ScratchDir(tmp_path)
    assert not left.exists()
    assert (kept / "job-1" / "left").exists()
    folder.close()
    alive.kill()
    alive.wait()
    ScratchDir(tmp_path).close()
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_folder_of_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "worker-file").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "worker-link").symlink_to(tmp_path / "other")
    ScratchDir(tmp_path / "new" / "deep").close()
    ScratchDir(tmp_path).close()
    assert {path.name for path in tmp_path.iterdir()} == {"worker-file", "other", "worker-link", "new"}


@pytest.mark.skipif(os.geteuid() != 0, reason="strangers have users of their own below root only")
def test_what_a_dead_owners_submissions_started_goes_with_its_folder(tmp_path: Path) -> None:
    dead, left = owner(tmp_path)
    user = 1_500_000_000
    os.chown(left / "job-1" / "left", user, user)
    stranger = subprocess.Popen([sys.executable, "-c", f"import os, time; os.setuid({user}); time.sleep(600)"])
    try:
        until(lambda: f"Uid:\t{user}" in Path(f"/proc/{stranger.pid}/status").read_text())
        dead.kill()
        dead.wait()
        ScratchDir(tmp_path).close()
        assert stranger.wait(timeout=10) == -signal.SIGKILL
    finally:
        stranger.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away, and ends other users' processes")
@pytest.mark.parametrize("whose", ["another user's", "its own"])
def test_nobody_is_ended_who_is_no_submission(whose: str, tmp_path: Path) -> None:
    """Links to a folder of somebody's, and such a folder itself, where a dead owner's submissions would have theirs."""
    bob = 4242
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "bobs").mkdir()
    os.chown(tmp_path / "home" / "bobs", bob, bob)
    parent = tmp_path / "work"
    left = parent / "worker-a"
    left.mkdir(parents=True, mode=0o700)
    (left / "job-1").symlink_to(tmp_path / "home")
    (left / "job-2").mkdir()
    os.chown(left / "job-2", bob, bob)
    (left / "standby-1").symlink_to(tmp_path / "home" / "bobs")
    (left / "standby-2").mkdir()
    os.chown(left / "standby-2", bob, bob)
    if whose == "another user's":
        os.chown(parent, bob, bob)
    with subprocess.Popen(["sleep", "600"], user=bob) as process:
        try:
            if whose == "another user's":
                with pytest.raises(UnsafeFolder, match="STATE_DIR"):
                    ScratchDir(parent)
                assert left.exists()
            else:
                ScratchDir(parent).close()
                assert not left.exists() and (tmp_path / "home" / "bobs").exists()
            assert process.poll() is None
        finally:
            process.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_bench_of_another_user_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "worker-theirs").mkdir()
    os.chown(tmp_path / "worker-theirs", 4242, 4242)
    ScratchDir(tmp_path).close()
    assert (tmp_path / "worker-theirs").exists()


def test_a_state_folder_that_is_open_to_all_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o777)
    with pytest.raises(UnsafeFolder, match="every user may write"):
        make_private(state, "STATE_DIR")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(UnsafeFolder, match="is a link"):
        make_private(tmp_path / "link", "STATE_DIR")
    make_private(tmp_path / "new" / "deep", "STATE_DIR")
    assert not (tmp_path / "new" / "deep").stat().st_mode & 0o022
