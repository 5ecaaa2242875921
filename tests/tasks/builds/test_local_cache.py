"""The build cache: what it keeps, what it refuses, who builds, what a death leaves."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from zipfile import ZipFile

import pytest

from backends.base import Artifact
from domain.fault import JobCancelled, KernelFault
from domain.paths import ROOT
from domain.result import Status
from tasks.builds import archive as build_archive
from tasks.builds import local_cache
from tasks.builds.archive import Finished
from tasks.builds.folder_digest import digest
from tasks.builds.local_cache import BuildCache, key_of

KEY = key_of(["a source"])
MIB = 1 << 20

HOLDER = """
import sys, time
from pathlib import Path
from tasks.builds.local_cache import BuildCache
with BuildCache(Path(sys.argv[1]), 1 << 20).build_lock(sys.argv[2], lambda: False, 10.0) as held:
    print(held, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def cache(tmp_path: Path) -> BuildCache:
    return BuildCache(tmp_path / "builds", 8 * MIB)


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """What a builder left: a library in a folder, an empty folder, a group of Triton's."""
    folder = tmp_path / "job" / "candidate"
    (folder / "ext" / "name").mkdir(parents=True)
    (folder / "ext" / "name" / "name.so").write_bytes(bytes(range(256)))
    (folder / "nothing").mkdir()
    (folder / "triton" / "abc").mkdir(parents=True)
    group = {"child_paths": {"k.cubin": f"{folder}/triton/abc/k.cubin"}}
    (folder / "triton" / "abc" / "__grp__k.json").write_text(json.dumps(group))
    return folder


def finished(fault: KernelFault | None = None, at: float | None = None) -> Finished:
    artifact = Artifact({"entry": "class Model"}, None, "the log") if fault is None else None
    return Finished(artifact, fault, "printed", time.time() if at is None else at, "here")


def new(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir()
    return folder


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Writing more fails, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def waited(reached: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_a_build_comes_back_as_it_was(cache: BuildCache, built: Path, tmp_path: Path) -> None:
    assert cache.restore(KEY, new(tmp_path, "before")) is None
    assert cache.store(KEY, built, digest(built), finished())
    # Another process, after a restart, has the same folder.
    other = new(tmp_path, "other")
    kept = BuildCache(tmp_path / "builds", 8 * MIB).restore(KEY, other)
    assert kept is not None
    assert kept.artifact == Artifact({"entry": "class Model"}, None, "the log")
    assert kept.output == "printed"
    assert (other / "ext" / "name" / "name.so").read_bytes() == bytes(range(256))
    assert (other / "nothing").is_dir()
    # Triton finds its files where they are now.
    group = json.loads((other / "triton" / "abc" / "__grp__k.json").read_text())
    assert group["child_paths"]["k.cubin"] == f"{other}/triton/abc/k.cubin"


def test_permissions_come_back_and_nothing_that_lends_rights(cache: BuildCache, built: Path, tmp_path: Path) -> None:
    modes = {"tool": 0o755, "closed": 0o400, "lends": 0o755, "nothing": 0o700, "triton": 0o750}
    for name in ("tool", "closed", "lends"):
        (built / name).write_text("#!/bin/sh\n")
    for name, mode in modes.items():
        (built / name).chmod(mode)
    (built / "lends").chmod(0o6755)
    assert cache.store(KEY, built, digest(built), finished())
    (entry,) = (tmp_path / "builds" / "entries").glob("*.zip")
    with ZipFile(entry) as archive:
        assert {member.external_attr >> 16 & ~0o777 for member in archive.infolist()[1:]} == {0}
    other = new(tmp_path, "other")
    assert cache.restore(KEY, other) is not None
    assert {name: (other / name).stat().st_mode & 0o7777 for name in modes} == modes


def test_what_may_be_done_with_a_file_is_part_of_its_build(cache: BuildCache, built: Path, tmp_path: Path) -> None:
    before = digest(built)
    (built / "ext" / "name" / "name.so").chmod(0o755)
    assert digest(built) != before
    assert not cache.store(KEY, built, before, finished())


@pytest.mark.parametrize(("name", "mode"), [("ext/name/name.so", 0o044), ("nothing", 0o055)])
def test_what_only_root_could_copy_is_not_kept(name: str, mode: int, cache: BuildCache, built: Path) -> None:
    (built / name).chmod(mode)
    assert build_archive.plain(built) is None


def test_a_job_that_changes_its_copy_changes_nothing_here(cache: BuildCache, built: Path, tmp_path: Path) -> None:
    cache.store(KEY, built, digest(built), finished())
    first, second = new(tmp_path, "first"), new(tmp_path, "second")
    cache.restore(KEY, first)
    (first / "ext" / "name" / "name.so").write_bytes(b"mine")
    (built / "ext" / "name" / "name.so").write_bytes(b"mine")
    assert cache.restore(KEY, second) is not None
    assert (second / "ext" / "name" / "name.so").read_bytes() == bytes(range(256))


def test_what_changed_after_the_builders_end_is_not_kept(cache: BuildCache, built: Path, tmp_path: Path) -> None:
    sealed = digest(built)
    (built / "ext" / "name" / "name.so").write_bytes(b"from outside")
    assert not cache.store(KEY, built, sealed, finished())
    assert cache.restore(KEY, new(tmp_path, "other")) is None


@pytest.mark.parametrize("kind", ["symlink", "pipe"])
def test_only_plain_files_are_kept(kind: str, cache: BuildCache, built: Path) -> None:
    if kind == "symlink":
        (built / "link").symlink_to("/etc/passwd")
    else:
        os.mkfifo(built / "pipe")
    assert not cache.store(KEY, built, digest(built), finished())


def test_what_no_path_reaches_is_not_kept(cache: BuildCache, built: Path) -> None:
    before = Path.cwd()
    os.chdir(built)
    for _ in range(17):
        os.mkdir("d" * 250)
        os.chdir("d" * 250)
    os.chdir(before)
    assert not cache.store(KEY, built, digest(built), finished())


def test_names_come_back_whatever_they_are(cache: BuildCache, built: Path, tmp_path: Path) -> None:
    names = [b"\xff\xfe", b"a\nb ", b"build.json", b"x" * 255, "größe".encode()]
    deep = built / ("d" * 200) / ("e" * 200)
    deep.mkdir(parents=True)
    for name in names:
        (deep / os.fsdecode(name)).write_bytes(name)
    assert cache.store(KEY, built, digest(built), finished())
    other = new(tmp_path, "other")
    assert cache.restore(KEY, other) is not None
    there = other / deep.relative_to(built)
    assert {os.fsencode(path.name): path.read_bytes() for path in there.iterdir()} == {name: name for name in names}


def test_one_that_goes_while_it_is_restored_is_there_all_the_same(
    cache: BuildCache, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.store(KEY, built, digest(built), finished())
    # As another process may have it, which finds it the oldest.
    monkeypatch.setattr(local_cache, "relocate", lambda *_: cache.archive(KEY).unlink())
    assert cache.restore(KEY, new(tmp_path, "other")) is not None


def test_what_is_too_large_is_not_kept(cache: BuildCache, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_archive, "MAX_BYTES", 100)
    assert not cache.store(KEY, built, digest(built), finished())


def test_what_is_larger_than_all_may_be_costs_no_other_its_place(built: Path, tmp_path: Path) -> None:
    cache, other = BuildCache(tmp_path / "builds", MIB), key_of(["another"])
    assert cache.store(KEY, built, digest(built), finished())
    (built / "large").write_bytes(os.urandom(2 * MIB))
    assert not cache.store(other, built, digest(built), finished())
    large = BuildCache(tmp_path / "elsewhere", 8 * MIB)
    assert large.store(other, built, digest(built), finished())
    with pytest.raises(OSError, match="BUILD_CACHE_MIB"):
        cache.receive(other, large.archive(other).read_bytes())
    assert cache.restore(KEY, new(tmp_path, "there")) is not None
    assert cache.restore(other, new(tmp_path, "not there")) is None


def test_a_job_whose_disk_is_full_leaves_a_build_to_others(cache: BuildCache, built: Path, tmp_path: Path) -> None:
    (built / "large").write_bytes(bytes(64 << 10))
    assert cache.store(KEY, built, digest(built), finished())
    job = new(tmp_path, "full")
    with files_of_at_most(16 << 10):
        assert cache.restore(KEY, job) is None
    assert list(job.iterdir()) == []
    assert cache.restore(KEY, new(tmp_path, "another's")) is not None


def test_a_damaged_build_is_made_anew(cache: BuildCache, built: Path, tmp_path: Path) -> None:
    cache.store(KEY, built, digest(built), finished())
    (entry,) = (tmp_path / "builds" / "entries").glob("*.zip")
    with ZipFile(entry) as archive:
        member = archive.getinfo("files/ext/name/name.so")
        at = member.header_offset + len(member.FileHeader())
    entry.chmod(0o600)
    with entry.open("r+b") as file:
        file.seek(at)
        file.write(b"damage")
    other = new(tmp_path, "other")
    assert cache.restore(KEY, other) is None
    assert list(other.iterdir()) == []
    assert not entry.exists()


FAULT = KernelFault(Status.COMPILE_ERROR, "message", "log")


@pytest.mark.parametrize("fault", [None, FAULT])
def test_a_damaged_note_is_no_builders_word(
    fault: KernelFault | None, cache: BuildCache, built: Path, tmp_path: Path
) -> None:
    assert cache.store(KEY, built, digest(built), finished(fault))
    entry = cache.archive(KEY)
    whole = bytearray(entry.read_bytes())
    with ZipFile(entry) as archive:
        note = archive.infolist()[0]
    whole[note.header_offset + len(note.FileHeader()) + note.compress_size // 2] ^= 1
    entry.unlink()
    entry.write_bytes(whole)
    assert cache.restore(KEY, new(tmp_path, "other")) is None
    assert not entry.exists()


def test_anothers_build_under_this_name_is_none(cache: BuildCache, built: Path, tmp_path: Path) -> None:
    other = key_of(["another source"])
    assert cache.store(other, built, digest(built), finished())
    cache.archive(other).rename(cache.archive(KEY))
    assert cache.restore(KEY, new(tmp_path, "other")) is None


def test_what_was_used_longest_ago_goes_first(built: Path, tmp_path: Path) -> None:
    (built / "large").write_bytes(os.urandom(MIB))
    cache = BuildCache(tmp_path / "builds", int(2.5 * MIB))
    keys = [key_of([number]) for number in range(3)]
    for age, key in enumerate(keys[:2]):
        cache.store(key, built, digest(built), finished())
        used = time.time() - 100 + age
        os.utime(tmp_path / "builds" / "entries" / f"{key}.zip", (used, used))
    cache.restore(keys[0], new(tmp_path, "used"))  # Now the second is the oldest.
    cache.store(keys[2], built, digest(built), finished())
    found = [cache.restore(key, new(tmp_path, key)) is not None for key in keys]
    assert found == [True, False, True]


def test_a_compile_error_is_remembered_for_a_while(cache: BuildCache, built: Path, tmp_path: Path) -> None:
    fault = KernelFault(Status.COMPILE_ERROR, "message", "log")
    cache.store(KEY, built, digest(built), finished(fault))
    kept = cache.restore(KEY, new(tmp_path, "soon"))
    assert kept is not None
    assert kept.fault is not None
    assert (kept.fault.status, kept.fault.message, kept.fault.log) == (Status.COMPILE_ERROR, "message", "log")
    cache.store(KEY, built, digest(built), finished(fault, time.time() - local_cache.FAULT_S - 1))
    assert cache.restore(KEY, new(tmp_path, "late")) is None


def test_one_at_a_time_for_each_key(cache: BuildCache) -> None:
    with cache.build_lock(KEY, lambda: False, 1.0) as first:
        assert first
        with cache.build_lock(key_of(["another"]), lambda: False, 1.0) as other:
            assert other
        with cache.build_lock(KEY, lambda: False, 0.0) as second:
            assert not second
        with pytest.raises(JobCancelled), cache.build_lock(KEY, lambda: True, 10.0):
            pass
    with cache.build_lock(KEY, lambda: False, 0.0) as afterwards:
        assert afterwards


def test_the_death_of_the_builder_frees_the_others(cache: BuildCache, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "builds"), KEY]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        entered = threading.Event()

        def wait() -> None:
            with cache.build_lock(KEY, lambda: False, 60.0) as held:
                if held:
                    entered.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not entered.is_set()
        os.kill(holder.pid, signal.SIGKILL)
        waiting.join(20)
        assert entered.is_set()


def test_what_a_dead_writer_left_goes(cache: BuildCache, built: Path, tmp_path: Path) -> None:
    draft = tmp_path / "builds" / "entries" / ".draft-dead"
    draft.write_bytes(b"half a build")
    os.utime(draft, (0, 0))
    cache.store(KEY, built, digest(built), finished())
    waited(lambda: not draft.exists())


def test_what_a_dead_checker_left_goes(cache: BuildCache, built: Path, tmp_path: Path) -> None:
    left = tmp_path / "builds" / "entries" / ".check-dead"
    (left / "ext").mkdir(parents=True)
    os.utime(left, (0, 0))
    assert cache.store(KEY, built, digest(built), finished())
    assert not left.exists()
