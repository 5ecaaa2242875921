"""What a worker that is root does as another user, and for one: it looks into its processes, and gives it files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from domain.paths import ROOT
from sandbox.isolation import uid

LOOKS = """
import ctypes, os
from sandbox.isolation import uid as identity
from sandbox.isolation.rlimits import die_with_parent
from sandbox.isolation.syscalls import prctl
from tests.sandbox.container import DOCKERS_CAPABILITIES

USER = 54_324
identity.keep_only(DOCKERS_CAPABILITIES)
die_with_parent(os.getppid())

def state():
    signal = ctypes.c_int()
    prctl(2, ctypes.addressof(signal))
    users = [line for line in open("/proc/thread-self/status") if line.startswith(("Uid", "Gid", "CapEff"))]
    return users, signal.value, prctl(3)

def looked_into(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/map_files")) and os.readlink(f"/proc/{pid}/fd/0") != ""
    except PermissionError:
        return False

read_end, write_end = os.pipe()
child = os.fork()
if not child:
    identity.become(USER, search_everywhere=False)
    os.write(write_end, b"x")
    os.read(os.pipe()[0], 1)
os.read(read_end, 1)
before = state()
print(looked_into(child))
with identity.looking_as(USER):
    print(looked_into(child))
print(looked_into(child), state() == before, before[1:])
os.kill(child, 9)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_looking_as_a_user_ends_as_it_began() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOKS], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["False", "True", "False True (9, 1)"], done


USER, SOMEBODY = 54_325, 54_326


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A submission's folder, owned by its user."""
    folder = tmp_path / "job"
    folder.mkdir()
    os.chown(folder, USER, USER)
    return folder


def owner(path: Path) -> int:
    return path.lstat().st_uid


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_a_file_that_lies_elsewhere_too_is_not_given_away(private: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "of somebody"
    elsewhere.write_text("not the submission's")
    os.chown(elsewhere, SOMEBODY, SOMEBODY)
    (private / "inner").mkdir()
    os.link(elsewhere, private / "first")
    os.link(elsewhere, private / "inner" / "second")
    (private / "own").write_text("its own")
    uid.give(private)
    assert owner(elsewhere) == owner(private / "first") == owner(private / "inner" / "second") == SOMEBODY
    assert owner(private / "own") == owner(private / "inner") == USER


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_what_is_linked_within_the_folder_is_given_with_it(private: Path) -> None:
    (private / "inner").mkdir()
    (private / "made").write_text("by a build")
    os.link(private / "made", private / "inner" / "again")
    uid.give(private)
    assert owner(private / "made") == owner(private / "inner" / "again") == USER


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_of_a_link_only_the_link_is_given(private: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("not the submission's")
    (private / "link").symlink_to(outside)
    os.mkfifo(private / "pipe")
    uid.give(private)
    assert owner(private / "link") == owner(private / "pipe") == USER and owner(outside) == 0
