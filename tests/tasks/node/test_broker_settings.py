"""A Redis of one's own that loses records, or lets in who knows its port, is told of; real servers."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from domain.paths import ROOT
from stack.redis_server import RedisServer
from tasks.node import broker_settings
from tasks.node.broker_settings import CODES, BrokerCheck, RedisTooOld, broker_warnings, is_local, require_version
from tests.conftest import free_port, start_redis

OPEN = ("--bind", "0.0.0.0", "--protected-mode", "no")
PASSWORD = "corr3ct-h0rse"


@contextmanager
def server(folder: Path, *options: str) -> Iterator[int]:
    """A server with these options; its port. Its password is set by `guarded`: `start_redis` asks without one."""
    port = free_port()
    process = start_redis(folder, port, *options)
    try:
        yield port
    finally:
        process.kill()
        process.wait()


def codes(url: str) -> list[str]:
    with Redis.from_url(url) as redis:
        return [each.code for each in broker_warnings(redis)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), []),
        (("--maxmemory-policy", "allkeys-lru"), ["redis-evicts"]),
        (("--maxmemory-policy", "volatile-ttl"), ["redis-evicts"]),
        (("--appendonly", "no"), ["redis-no-append-only-file"]),
        (("--appendonly", "no", "--maxmemory-policy", "allkeys-lfu"), ["redis-evicts", "redis-no-append-only-file"]),
    ],
)
def test_what_loses_records_is_told(tmp_path: Path, options: tuple[str, ...], expected: list[str]) -> None:
    with server(tmp_path, *options) as port:
        assert codes(f"redis://127.0.0.1:{port}/0") == expected


def test_a_server_without_a_password_is_told_of_where_others_may_reach_it(tmp_path: Path) -> None:
    with server(tmp_path, *OPEN, "--unixsocket", str(tmp_path / "s")) as port:
        assert codes(f"redis://127.0.0.1:{port}/0") == codes(f"redis://localhost:{port}/0") == []
        assert codes(f"unix://{tmp_path}/s") == []
        # Another address of this machine: it is not seen that nobody else reaches it.
        assert codes(f"redis://0.0.0.0:{port}/0") == ["redis-no-password"]
        assert codes(f"redis://:sent-and-not-needed@0.0.0.0:{port}/0") == ["redis-no-password"]
        with Redis(port=port) as redis:
            redis.config_set("requirepass", PASSWORD)
        assert codes(f"redis://:{PASSWORD}@0.0.0.0:{port}/0") == []


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("redis", False),
        ("10.0.0.1", False),
    ],
)
def test_which_addresses_nobody_else_reaches(host: str, local: bool) -> None:
    assert is_local({"host": host}) is local


def test_where_it_refuses_to_say_that_is_said(tmp_path: Path) -> None:
    with server(tmp_path, "--maxmemory-policy", "allkeys-lru") as port:
        with Redis(port=port) as redis:
            redis.acl_setuser(
                "limited",
                True,
                passwords=[f"+{PASSWORD}"],
                keys=["*"],
                categories=["+@all"],
                commands=["-info", "-config"],
            )
        with Redis.from_url(f"redis://limited:{PASSWORD}@127.0.0.1:{port}/0") as redis:
            (warning,) = broker_warnings(redis)
    assert warning.code == "redis-settings-unknown" and "refuses INFO" in warning.message


def test_a_server_that_lacks_what_the_reconciler_needs_is_refused(tmp_path: Path) -> None:
    with server(tmp_path) as port, Redis(port=port) as redis:
        require_version(redis)
    with server(tmp_path, "--rename-command", "EXPIRE", "") as port, Redis(port=port) as redis:
        with pytest.raises(RedisTooOld, match=r"7\.0 or newer"):
            require_version(redis)
        done = subprocess.run(
            [sys.executable, "-m", "celery", "--app", "tasks.app", "worker", "--pool", "solo", "--hostname", "w@test"],
            cwd=ROOT,
            env={**os.environ, "CELERY_BROKER_URL": f"redis://127.0.0.1:{port}/0", "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode != 0 and "use Redis 7.0 or newer" in done.stderr


def test_the_embedded_server_has_nothing_wrong(tmp_path: Path) -> None:
    settings = RedisServer(tmp_path, free_port(), PASSWORD).program({}).command[1]
    # The file's own settings, and a port and address at which a password would be missed.
    process_options = [*OPEN, *(part for line in Path(settings).read_text().splitlines() for part in _option(line))]
    with server(tmp_path, *process_options) as port, Redis(port=port) as redis:
        redis.config_set("requirepass", PASSWORD)
        assert codes(f"redis://:{PASSWORD}@0.0.0.0:{port}/0") == []


def _option(line: str) -> list[str]:
    name, _, value = line.partition(" ")
    return [] if name in ("bind", "port", "dir", "requirepass") else [f"--{name}", value.strip('"')]


def test_a_look_is_kept_for_a_minute_and_what_is_new_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    caplog.set_level(logging.WARNING, logger=broker_settings.__name__)
    with server(tmp_path, "--appendonly", "no") as port, Redis(port=port) as redis:
        look = BrokerCheck(redis, lambda: now[0])
        assert [each.code for each in look.warnings()] == ["redis-no-append-only-file"]
        redis.config_set("maxmemory-policy", "allkeys-lru")
        assert len(look.warnings()) == 1
        now[0] += 61
        assert [each.code for each in look.warnings()] == ["redis-evicts", "redis-no-append-only-file"]
        redis.config_set("appendonly", "yes")
        redis.config_set("maxmemory-policy", "noeviction")
        now[0] += 61
        assert look.warnings() == []
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        *("redis-no-append-only-file", "redis-evicts")
    ]
    now[0] += 61
    with pytest.raises(RedisConnectionError):
        look.warnings()


def test_every_code_is_in_the_documents() -> None:
    told = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert [code for code in CODES if f"`{code}`" not in told] == []
