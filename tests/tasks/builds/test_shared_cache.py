"""Builds that nodes ship each other: what is kept, what is refused, what it costs when Redis goes."""

from __future__ import annotations

import io
import json
import os
import resource
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_LZMA, ZIP_STORED, ZipFile, ZipInfo

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from backends.base import Artifact
from domain.fault import KernelFault
from domain.result import Status
from tasks.builds import archive as build_archive
from tasks.builds import shared_cache
from tasks.builds.archive import Finished
from tasks.builds.folder_digest import digest
from tasks.builds.local_cache import BuildCache, key_of
from tasks.builds.shared_cache import BuildTarget, SharedBuilds
from tasks.node.redis_client import text
from tests.conftest import free_port, start_redis

KEY = key_of(["a source"])
MIB = 1 << 20
AT_ONCE = Retry(NoBackoff(), 0)
Member = tuple[ZipInfo, bytes, int | None]
"""An entry of an archive, its content, and the size that the archive tells of it."""


@pytest.fixture
def here(redis: Redis) -> SharedBuilds:
    return SharedBuilds(redis, MIB)


@pytest.fixture
def there(redis: Redis) -> SharedBuilds:
    return SharedBuilds(redis, MIB)


class Node:
    """A node's kept builds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = BuildCache(folder / "builds", 64 * MIB)

    def keep(self, key: str, content: bytes = b"a library", fault: KernelFault | None = None) -> Path:
        folder = self.folder / key
        folder.mkdir(parents=True)
        (folder / "name.so").write_bytes(content)
        artifact = Artifact({"entry": "class Model"}) if fault is None else None
        done = Finished(artifact, fault, "printed", time.time(), "somebody")
        assert self.cache.store(key, folder, digest(folder), done)
        return self.cache.archive(key)

    def restored(self, key: str) -> tuple[Finished | None, Path]:
        folder = self.folder / f"restored-{key}"
        folder.mkdir()
        return self.cache.restore(key, folder), folder


@pytest.fixture
def first(tmp_path: Path) -> Node:
    return Node(tmp_path / "first")


@pytest.fixture
def second(tmp_path: Path) -> Node:
    return Node(tmp_path / "second")


def kept_bytes(redis: Redis) -> int:
    return int(redis.get("builds:bytes") or 0)


def test_a_build_comes_to_another_node_as_it_was(
    here: SharedBuilds, there: SharedBuilds, first: Node, second: Node
) -> None:
    assert not there.fetch(KEY, second.cache)
    assert here.share(KEY, first.keep(KEY))
    assert there.fetch(KEY, second.cache)
    kept, folder = second.restored(KEY)
    assert kept is not None
    assert (kept.artifact, kept.output, kept.by) == (Artifact({"entry": "class Model"}), "printed", "somebody")
    assert (folder / "name.so").read_bytes() == b"a library"


@pytest.mark.parametrize("content", [bytes(5 * MIB), os.urandom(3 * MIB), b""], ids=["zeros", "noise", "nothing"])
def test_whatever_is_in_it(content: bytes, redis: Redis, first: Node, second: Node) -> None:
    store = SharedBuilds(redis, 8 * MIB)
    assert store.share(KEY, first.keep(KEY, content))
    assert store.fetch(KEY, second.cache)
    assert (second.restored(KEY)[1] / "name.so").read_bytes() == content


def test_archives_are_compressed_on_their_way_alone(
    redis: Redis, here: SharedBuilds, first: Node, second: Node
) -> None:
    """A node restores a build more often than it sends or fetches it."""
    archive = first.keep(KEY, bytes(5 * MIB))
    assert here.share(KEY, archive) and here.fetch(KEY, second.cache)
    assert kept_bytes(redis) < MIB // 10
    for path in (archive, second.cache.archive(KEY)):
        with ZipFile(path) as packed:
            assert {member.compress_type for member in packed.infolist()} == {ZIP_STORED}


def test_a_damaged_archive_is_not_shared(redis: Redis, here: SharedBuilds, first: Node) -> None:
    archive = first.keep(KEY, b"a library")
    archive.chmod(0o600)
    archive.write_bytes(archive.read_bytes().replace(b"a library", b"a libRary"))
    assert not here.share(KEY, archive) and not here.contains(KEY)


def test_a_fault_comes_too(redis: Redis, here: SharedBuilds, first: Node, second: Node) -> None:
    fault = KernelFault(Status.COMPILE_ERROR, "message", "log")
    here.share(KEY, first.keep(KEY, fault=fault))
    assert here.fetch(KEY, second.cache)
    kept, _ = second.restored(KEY)
    assert kept is not None and kept.fault is not None
    assert (kept.fault.status, kept.fault.message, kept.fault.log) == (Status.COMPILE_ERROR, "message", "log")


def test_the_oldest_go_first_and_the_count_is_true(redis: Redis, first: Node) -> None:
    keys = [key_of([number]) for number in range(4)]
    archives = [first.keep(key, bytes(200)) for key in keys]
    one = len(build_archive.deflated(archives[0]))
    store = SharedBuilds(redis, int(2.5 * one))
    for key, archive in zip(keys, archives, strict=True):
        assert store.share(key, archive)
        assert kept_bytes(redis) == sum(map(len, redis.hvals("builds:archives"))) <= 2.5 * one
    assert [store.contains(key) for key in keys] == [False, False, True, True]
    assert redis.zcard("builds:stored") == 2
    store.share(keys[3], archives[3])
    assert [store.contains(key) for key in keys] == [False, False, True, True], "the same once more takes no more room"


@pytest.mark.parametrize("too_large", ["for one", "for all"])
def test_what_is_too_large_is_not_shipped(
    too_large: str, redis: Redis, first: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    if too_large == "for one":
        monkeypatch.setattr(shared_cache, "MAX_PACKED_BYTES", 100)
    store = SharedBuilds(redis, MIB if too_large == "for one" else 100)
    assert not store.share(KEY, first.keep(KEY))
    assert not store.contains(KEY)


def member(name: str, content: bytes = b"", *, size: int | None = None, packing: int = ZIP_STORED) -> Member:
    info = ZipInfo(name)
    info.compress_type = packing
    return info, content, size


NOTE = {
    "key": KEY,
    **{
        "artifact": {"facts": {}, "deferred": None, "log": "", "example": None},
        "fault": None,
        "output": "",
        "at": 0.0,
        "by": "evil",
    },
    # Of an empty folder.
    **{"digest": "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8", "folder": "/job"},
}


def packed(note: dict[str, Any] | bytes, *members: Member) -> bytes:
    file = io.BytesIO()
    with ZipFile(file, "w") as archive:
        archive.writestr("build.json", note if isinstance(note, bytes) else json.dumps(note))
        for info, content, size in members:
            archive.writestr(info, content)
            info.file_size = info.file_size if size is None else size  # As the directory at the end tells it.
    return file.getvalue()


POISON: dict[str, Callable[[], bytes]] = {
    "no archive": lambda: b"pickle me",
    "half of one": lambda: packed(NOTE)[:-5],
    "no note": lambda: packed(NOTE, member("files/name"))[:-22],
    "no entries": lambda: b"PK\5\6" + bytes(18),
    "an encrypted one": lambda: packed(NOTE).replace(b"PK\1\2\x14\3\x14\0\0", b"PK\1\2\x14\3\x14\0\1"),
    "another packing": lambda: packed(NOTE, member("files/name", b"code", packing=ZIP_LZMA)),
    "another digest": lambda: packed({**NOTE, "digest": "00"}),
    "a digest that is none": lambda: packed({**NOTE, "digest": None}),
    "another's": lambda: packed({**NOTE, "key": key_of(["another source"])}),
    "no key": lambda: packed({name: value for name, value in NOTE.items() if name != "key"}),
    "files that it does not name": lambda: packed(NOTE, member("files/name.so", b"code")),
    "a place outside": lambda: packed(NOTE, member("files/../../name.so", b"code")),
    "an absolute place": lambda: packed(NOTE, member("/files/name.so", b"code")),
    "a path of characters beyond a byte": lambda: packed(NOTE, member("files/\u4e00", b"code")),
    "a file within a file": lambda: packed(NOTE, member("files/name", b"code"), member("files/name/name")),
    "a name that no disk takes": lambda: packed(NOTE, member("files/" + "a" * 300)),
    "too deep": lambda: packed(NOTE, member("files/" + "a/" * 1500 + "b")),
    "too many": lambda: packed(NOTE, *(member(f"files/{number}") for number in range(build_archive.MAX_FILES + 1))),
    "facts that are none": lambda: packed(
        {**NOTE, "artifact": {"facts": [], "deferred": None, "log": "", "example": None}}
    ),
    "a verdict": lambda: packed({**NOTE, "artifact": None, "fault": ["passed", "", "", True]}),
    "neither end": lambda: packed({**NOTE, "artifact": None}),
    "a time beyond all numbers": lambda: packed({**NOTE, "at": 10**400}),
    "a note without an end": lambda: packed(b"[[[["),
    "a bomb": lambda: packed(
        NOTE, *(member(f"files/{n}", bytes(9 * MIB), packing=ZIP_DEFLATED) for n in range(2)), member("files/2")
    ),
    "a file of more than all": lambda: packed(NOTE, member("files/large", size=1 << 31)),
    "a file of more than it says": lambda: packed(NOTE, member("files/short", b"code", size=2)),
}


@pytest.mark.parametrize("kind", POISON)
def test_what_is_no_build_is_refused_and_dropped(
    kind: str, redis: Redis, here: SharedBuilds, second: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_archive, "MAX_BYTES", 8 * MIB)
    poison = POISON[kind]()
    redis.hset("builds:archives", KEY, poison)
    assert not here.fetch(KEY, second.cache)
    assert second.restored(KEY)[0] is None
    assert list((second.folder / "builds" / "entries").iterdir()) == []
    assert not here.contains(KEY)


def test_one_that_is_too_large_is_refused_before_it_is_looked_at(
    redis: Redis, here: SharedBuilds, second: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shared_cache, "MAX_PACKED_BYTES", 100)
    redis.hset("builds:archives", KEY, bytes(101))
    assert not here.fetch(KEY, second.cache)
    assert not here.contains(KEY)
    assert "larger than any shared build" in caplog.text


def test_members_that_share_their_bytes_are_refused_before_they_are_unpacked(second: Node) -> None:
    file = io.BytesIO()
    with ZipFile(file, "w") as archive:
        archive.writestr("build.json", json.dumps(NOTE))
        for number in range(2):
            info = ZipInfo(f"files/{number}")
            archive.writestr(info, b"")
            info.compress_size = build_archive.MAX_BYTES
    with pytest.raises(ValueError, match="larger than any cached build"):
        second.cache.receive(KEY, file.getvalue())


def test_a_note_that_unpacks_to_more_than_it_says_takes_no_memory(second: Node) -> None:
    note, file = json.dumps(NOTE).encode(), io.BytesIO()
    info = ZipInfo("build.json")
    with ZipFile(file, "w") as archive:
        archive.writestr(info, note + bytes(100 * MIB), ZIP_DEFLATED)
        info.file_size, info.CRC = len(note), zlib.crc32(note)
    tracemalloc.start()
    second.cache.receive(KEY, file.getvalue())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * MIB


def test_the_empty_build_that_the_poison_is_made_of_is_one(
    redis: Redis, here: SharedBuilds, second: Node, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    assert NOTE["digest"] == digest(tmp_path / "empty").hex()
    redis.hset("builds:archives", KEY, packed(NOTE))
    assert here.fetch(KEY, second.cache)
    assert second.restored(KEY)[0] is not None


def test_a_node_whose_disk_is_full_leaves_a_build_to_others(
    redis: Redis, here: SharedBuilds, first: Node, second: Node
) -> None:
    assert here.share(KEY, first.keep(KEY, os.urandom(64 << 10)))
    packed = redis.hget("builds:archives", KEY) or b""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 10, limits[1]))
    try:
        assert not here.fetch(KEY, second.cache)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list((second.folder / "builds" / "entries").iterdir()) == []
    assert redis.hget("builds:archives", KEY) == packed


@pytest.fixture
def full(redis: Redis) -> Iterator[Callable[[], object]]:
    """Fills Redis, for this test."""
    yield lambda: redis.config_set("maxmemory", redis.info("memory")["used_memory"] - MIB // 4)
    redis.config_set("maxmemory", 0)


def test_a_full_redis_gives_what_it_has(redis: Redis, first: Node, second: Node, full: Callable[[], object]) -> None:
    keys = [key_of([number]) for number in range(3)]
    store = SharedBuilds(redis, 8 * MIB)
    for key in keys:
        assert store.share(key, first.keep(key, os.urandom(MIB)))
    full()
    assert SharedBuilds(redis, MIB).fetch(keys[1], second.cache)
    assert kept_bytes(redis) == sum(map(len, redis.hvals("builds:archives")))


def test_a_full_redis_takes_nothing_and_changes_nothing(
    redis: Redis, first: Node, full: Callable[[], object], here: SharedBuilds
) -> None:
    assert here.share(KEY, first.keep(KEY))
    full()
    other = key_of(["another"])
    assert not here.share(other, first.keep(other))
    assert redis.hkeys("builds:archives") == [KEY.encode()]


def test_nothing_stays_for_ever(redis: Redis, here: SharedBuilds, first: Node, second: Node) -> None:
    assert here.share(KEY, first.keep(KEY))
    redis.hset("builds:archives", KEY, b"none")
    assert not here.fetch(KEY, second.cache)
    assert [key for key in redis.scan_iter("builds:*") if redis.ttl(key) < 0] == []


def test_a_count_that_is_wrong_does_not_stay_so(redis: Redis, here: SharedBuilds, first: Node) -> None:
    redis.set("builds:bytes", 2 * MIB)
    archive = first.keep(KEY)
    for _ in range(2):
        here.share(KEY, archive)
    assert kept_bytes(redis) == sum(map(len, redis.hvals("builds:archives"))) > 0


def test_without_redis_everybody_builds_for_himself_and_is_told_once(
    first: Node, second: Node, caplog: pytest.LogCaptureFixture
) -> None:
    with Redis(port=free_port(), retry=AT_ONCE) as nobody:
        store = SharedBuilds(nobody, MIB)
        for _ in range(2):
            assert not store.fetch(KEY, second.cache)
        assert not store.share(KEY, first.keep(KEY))
    assert len([record for record in caplog.records if "cannot be reached" in record.message]) == 1


def test_a_redis_that_comes_back_has_what_was_shared(tmp_path: Path, first: Node, second: Node) -> None:
    folder, port = tmp_path / "redis", free_port()
    folder.mkdir()
    server = start_redis(folder, port, "--appendfsync", "always")
    with Redis(port=port, retry=AT_ONCE) as client:
        store = SharedBuilds(client, MIB)
        archive = first.keep(KEY)
        assert store.share(KEY, archive)
        server.kill()
        server.wait()
        other = key_of(["another"])
        assert not store.fetch(other, second.cache) and not store.share(other, archive), "and nothing is raised"
        server = start_redis(folder, port, "--appendfsync", "always")
        # Another process: this one asks again only after a while.
        assert SharedBuilds(client, MIB).fetch(KEY, second.cache)
        server.kill()
        server.wait()


def test_targets_are_those_of_the_last_day(redis: Redis, here: SharedBuilds, there: SharedBuilds) -> None:
    targets = [BuildTarget("h200", "sm_90", "a"), BuildTarget("cpu", "cpu", "a"), BuildTarget("cpu", "cpu", "b")]
    assert there.targets() == []
    for target in (*targets, targets[0]):
        here.announce(target)
    assert sorted(there.targets(), key=repr) == sorted(targets, key=repr)
    (member,) = [one for one in map(text, redis.zrange("builds:targets", 0, -1)) if "h200" in one]
    redis.zadd("builds:targets", {member: time.time() - shared_cache.TTL_S - 1})
    assert sorted(there.targets(), key=repr) == sorted(targets[1:], key=repr)
    assert 0 < redis.ttl("builds:targets") <= shared_cache.TTL_S
