"""Groups are made where the worker may, with their limits, and swept; over a tree of files in place of the kernel's.

What the kernel does beside that (files of a new group, EBUSY, who dies) is done here by the test.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.isolation import cgroup
from sandbox.isolation.cgroup import CONTROLLERS, PREFIX, SERVICE_GROUP, SPARE_MEMORY, Cgroup, Cgroups
from sandbox.isolation.rlimits import MAX_PROCESSES

ALL = " ".join(CONTROLLERS)
NOBODY = 2**22 + 1
"""No process has that number: it is above the highest that there is."""


class Tree:
    """A cgroup filesystem: what is made below `top` has the files that the kernel gives a group."""

    def __init__(self, top: Path, controllers: str = ALL) -> None:
        self.top = top
        self.controllers = controllers
        self.kills = True
        self.refused: dict[str, list[int]] = {}
        """By file: the errors that the next writes to it end with."""
        self.written: list[tuple[str, str]] = []
        self.make(top, root=True)

    def make(self, group: Path, *, root: bool = False) -> None:
        real_mkdir(group, parents=root)
        names = ["cgroup.procs", "cgroup.subtree_control"]
        names += [] if root else ["memory.events", *(["cgroup.kill"] if self.kills else [])]
        for name in names:
            (group / name).touch()
        (group / "cgroup.controllers").write_bytes(self.controllers.encode())

    def mkdir(self, path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        if not path.is_relative_to(self.top):
            return real_mkdir(path, mode, parents, exist_ok)
        if not (exist_ok and path.is_dir()):
            self.make(path)

    def rmdir(self, path: Path) -> None:
        """The kernel's files go with their group, which has to be without processes."""
        if path.is_relative_to(self.top):
            if (path / "cgroup.procs").read_text().split():
                raise OSError(errno.EBUSY, "somebody is in it")
            for file in path.iterdir():
                file.unlink()
        real_rmdir(path)

    def write_text(self, path: Path, text: str) -> int:
        if not path.is_relative_to(self.top):
            return real_write_text(path, text)
        name = str(path.relative_to(self.top))
        if self.refused.get(name):
            code = self.refused[name].pop(0)
            raise OSError(code, os.strerror(code))
        if path.name.partition(".")[0] in CONTROLLERS and path.name.partition(".")[0] not in self.controllers.split():
            raise FileNotFoundError(path)
        self.written.append((name, text))
        if path.name == "cgroup.subtree_control":
            return real_write_text(path, text.replace("+", ""))
        if path.name == "cgroup.kill":
            return real_write_text(path.parent / "cgroup.procs", "")
        return real_write_text(path, text)


real_mkdir, real_rmdir, real_write_text = Path.mkdir, Path.rmdir, Path.write_text


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tree]:
    def grow(controllers: str = ALL) -> Tree:
        made = Tree(tmp_path / "cgroup", controllers)
        monkeypatch.setattr(Path, "mkdir", lambda path, *given, **named: made.mkdir(path, *given, **named))
        monkeypatch.setattr(Path, "rmdir", lambda path: made.rmdir(path))
        monkeypatch.setattr(Path, "write_text", lambda path, text, **_: made.write_text(path, text))
        return made

    return grow


def found(made: Tree) -> Cgroups:
    groups = cgroup.available([made.top])
    assert groups is not None
    return groups


def test_a_group_has_every_limit(tree: Callable[..., Tree], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    made = tree()
    group = found(made).group("7", 1 << 30)
    path = made.top / f"{PREFIX}{os.getpid()}-7"
    limits = {name: (path / name).read_text() for name in ("memory.max", "memory.swap.max", "memory.oom.group")}
    assert limits == {"memory.max": str((1 << 30) + SPARE_MEMORY), "memory.swap.max": "0", "memory.oom.group": "1"}
    assert (path / "pids.max").read_text() == str(MAX_PROCESSES)
    assert (path / "cpu.max").read_text() == "700000 100000"
    group.add(4711)
    assert (path / "cgroup.procs").read_text() == "4711"
    group.end()
    group.close()
    assert not path.exists()


@pytest.mark.parametrize("processors", [1, 2])
def test_one_processor_is_left_to_it_at_least(
    tree: Callable[..., Tree], processors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(processors)))
    made = tree()
    found(made).group("7", 1 << 30)
    assert (made.top / f"{PREFIX}{os.getpid()}-7" / "cpu.max").read_text() == "100000 100000"


def test_the_controllers_that_are_there_are_switched_on_and_the_others_told(tree: Callable[..., Tree]) -> None:
    made = tree("cpuset memory io")
    groups = found(made)
    assert ("cgroup.subtree_control", "+memory") in made.written
    assert (groups.controllers, groups.missing) == (("memory",), ("pids", "cpu"))
    groups.group("7", 1 << 30)
    path = made.top / f"{PREFIX}{os.getpid()}-7"
    assert (path / "memory.max").exists() and not (path / "pids.max").exists() and not (path / "cpu.max").exists()


def test_a_containers_top_group_makes_room(tree: Callable[..., Tree]) -> None:
    """Who has processes cannot have limited groups below; a group that has one above it is left as it is."""
    made = tree()
    (made.top / "cgroup.procs").write_bytes(b"1\n17\n23\n")
    made.refused = {"cgroup.subtree_control": [errno.EBUSY], f"{SERVICE_GROUP}/cgroup.procs": [errno.ESRCH]}
    groups = found(made)
    assert [text for name, text in made.written if name == f"{SERVICE_GROUP}/cgroup.procs"] == ["17", "23"], (
        "1 has died"
    )
    assert made.written[-1] == ("cgroup.subtree_control", "+memory +pids +cpu")
    assert groups.missing == ()


def test_a_group_below_another_is_not_emptied(tree: Callable[..., Tree]) -> None:
    made = tree()
    (made.top.parent / "cgroup.procs").touch()
    made.refused = {"cgroup.subtree_control": [errno.EBUSY]}
    assert cgroup.available([made.top]) is None
    assert not (made.top / SERVICE_GROUP).exists()


def test_where_making_room_does_not_help_there_are_none(tree: Callable[..., Tree]) -> None:
    made = tree()
    made.refused = {"cgroup.subtree_control": [errno.EBUSY, errno.EBUSY]}
    assert cgroup.available([made.top]) is None


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_where_nothing_may_be_written_there_are_none(tree: Callable[..., Tree], code: int) -> None:
    made = tree()
    made.refused = {"cgroup.subtree_control": [code]}
    assert cgroup.available([made.top]) is None


def test_a_kernel_that_cannot_kill_a_group_has_none(tree: Callable[..., Tree]) -> None:
    made = tree()
    made.kills = False
    assert cgroup.available([made.top]) is None
    assert [path for path in made.top.iterdir() if path.is_dir()] == []


def test_what_dead_workers_left_is_ended_and_removed(tree: Callable[..., Tree]) -> None:
    made = tree()
    dead, alive, foreign = (made.top / name for name in (f"{PREFIX}{NOBODY}-3", f"{PREFIX}{os.getpid()}-3", "other-1"))
    for path in (dead, alive, foreign):
        made.make(path)
        (path / "cgroup.procs").write_bytes(b"4711")
    found(made)
    assert (dead.exists(), alive.exists(), foreign.exists()) == (False, True, True)
    assert [name for name, _ in made.written if name.endswith("cgroup.kill")] == [f"{dead.name}/cgroup.kill"]


def test_a_group_waits_a_moment_for_its_zombies_and_no_longer(
    tree: Callable[..., Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tree()
    looks: list[float] = []

    def buried_at_the_third(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            (made.top / f"{PREFIX}{os.getpid()}-7" / "cgroup.procs").write_bytes(b"")

    monkeypatch.setattr("time.sleep", buried_at_the_third)
    group = found(made).group("7", 1 << 30)
    group.add(4711)
    group.close()
    assert len(looks) == 3 and not (made.top / f"{PREFIX}{os.getpid()}-7").exists()
    group.close()  # Gone already.
    monkeypatch.setattr(cgroup, "GONE_S", 0.0)
    stays = found(made).group("8", 1 << 30)
    stays.add(4711)
    stays.close()
    assert (made.top / f"{PREFIX}{os.getpid()}-8").exists()


@pytest.mark.parametrize(
    ("events", "count"), [("low 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 1\n", 2), ("low 0\n", None), (None, None)]
)
def test_kills_for_want_of_memory_are_counted(tree: Callable[..., Tree], events: str | None, count: int | None) -> None:
    made = tree()
    group: Cgroup = found(made).group("7", 1 << 30)
    file = made.top / f"{PREFIX}{os.getpid()}-7" / "memory.events"
    file.unlink() if events is None else file.write_bytes(events.encode())
    assert group.memory_kills() == count
