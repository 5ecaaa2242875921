"""The running stack as a context manager: the service answers inside the block."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
from redis.exceptions import RedisError

from domain.fault import InfrastructureFault
from domain.paths import ROOT
from domain.settings import JSON, Settings
from sandbox.isolation.uid import allow_traversal
from stack import devices, environment, processes
from stack.devices import Gpu
from stack.drain import Drain
from stack.log_files import LogBook
from stack.redis_server import RedisServer, locked_folder
from stack.shutdown import Stop, ignore_signals
from stack.supervisor import STACK_NAME, Supervisor
from stack.terminal import Terminal
from tasks.node import device_lease
from tasks.node.broker_settings import RedisTooOld, require_version
from tasks.node.redis_client import WritesRefused, connect

START_S = 120.0
SLICE_S = 0.1
PROBE_S = 5.0
EVERY_INTERFACE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class StartError(RuntimeError):
    """The stack did not start; the message says what to do about it."""


@dataclass(frozen=True)
class Stack:
    """A running stack. Its owner must keep calling `tick`."""

    url: str
    gpus: list[Gpu]
    settings: Settings
    supervisor: Supervisor
    log: LogBook

    def tick(self, seconds: float) -> None:
        self.supervisor.tick(seconds)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Calls `tick` until the condition holds; raises StartError if a process ends or time is over."""
        deadline = time.monotonic() + START_S
        while not condition():
            self.tick(SLICE_S)
            if self.supervisor.deaths or time.monotonic() > deadline:
                raise StartError(_why_not(self.log, what, list(self.supervisor.deaths)))


@contextlib.contextmanager
def running(settings: Settings, console: Terminal | None = None) -> Iterator[Stack]:
    """Starts everything, waits until it answers, and stops it again.

    A lasting service keeps its jobs and builds, and finishes running jobs before it stops; logs always stay. `console`
    gets the processes' lines too. Raises StartError, DeviceError or NoRedisServer.
    """
    gpus = devices.chosen(devices.installed(), settings.gpu_device, environment.visible_devices())
    _require_free(settings)
    _require_lease_folder()
    if environment.is_set("CELERY_BROKER_URL"):
        _require_redis()
    with contextlib.ExitStack() as cleanup:
        # Cleaned up in reverse order: the folder is removed when no process uses it any more.
        directory = tempfile.TemporaryDirectory(prefix="kernel-eval-", dir=environment.scratch())
        scratch = Path(cleanup.enter_context(directory))
        allow_traversal(scratch)  # The jobs' folders are below, and submissions have users of their own.
        temporary = scratch / "tmp"
        temporary.mkdir(mode=0o700)
        if not environment.is_set("LOG_FORMAT"):
            settings = dataclasses.replace(settings, log_format=JSON)
        log = _log_book(settings, console)
        cleanup.callback(log.close)
        redis = None
        if not environment.is_set("CELERY_BROKER_URL"):
            folder = _queue(settings) if settings.lasting else scratch / "redis"
            redis = RedisServer.on_free_port(folder, cleanup.enter_context(locked_folder(folder)))
            settings = dataclasses.replace(settings, broker_url=redis.url)
        supervisor = Supervisor(log)
        cleanup.callback(supervisor.stop)
        cleanup.callback(ignore_signals)
        if not environment.is_set("STATE_DIR"):
            settings = dataclasses.replace(settings, state_dir=scratch / "state")
            if settings.lasting:
                _keep_builds(settings, log)
        draining = scratch / "draining"
        settings = dataclasses.replace(settings, drain_file=draining)
        stack = Stack(_url(settings), gpus, settings, supervisor, log)
        try:
            if redis is not None:
                supervisor.start(redis.program(environment.for_child(settings, temporary)))
                stack.wait_until(redis.answers, "the Redis server")
            for program in [processes.api(settings, temporary), *processes.workers(settings, gpus, temporary)]:
                supervisor.start(program)
            stack.wait_until(lambda: _healthy(stack.url), "the service")
            log.line(STACK_NAME, f"ready at {stack.url}", quiet=True)
            yield stack
        except Stop:
            if settings.lasting:
                draining.touch()  # From here on the API refuses new jobs, but still answers about others.
                Drain(supervisor, settings).run()
            raise


def _require_lease_folder() -> None:
    """Raises StartError if another user can change the folder in which jobs queue for a device."""
    try:
        device_lease.create_folder()
    except (InfrastructureFault, OSError) as error:
        raise StartError(f"jobs cannot queue for a device: {error}; name another folder with LEASE_DIR") from error


def _require_redis() -> None:
    """Raises StartError if the Redis server that was named does not answer, or is too old."""
    try:
        with connect(waits=False) as redis:
            require_version(redis)
    except RedisTooOld as error:
        raise StartError(str(error)) from error
    except WritesRefused:
        return  # It answers. Workers look at its version, and wait until it takes writes.
    except RedisError as error:
        raise StartError(
            f"no Redis server answers at CELERY_BROKER_URL: {error}; start it, or unset the variable for one of its own"
        ) from error


def _queue(settings: Settings) -> Path:
    """The folder of the queue for this port: services on two ports have two queues, which survive a restart."""
    return environment.lasting_folder(settings) / f"redis-{settings.port}"


def _keep_builds(settings: Settings, log: LogBook) -> None:
    """Keeps builds for the next start, on any port.

    Not the whole of STATE_DIR: submissions' own users need jobs' folders and compilers, and cannot enter a closed home.
    """
    folder = environment.lasting_folder(settings) / "builds"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings.state_dir.mkdir(exist_ok=True)
        (settings.state_dir / "builds").symlink_to(folder)
    except OSError as error:
        log.line(STACK_NAME, f"builds are not kept for the next start ({error}); name a folder with STATE_DIR")


def _url(settings: Settings) -> str:
    host = EVERY_INTERFACE.get(settings.host, settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def _log_book(settings: Settings, console: Terminal | None) -> LogBook:
    """Raises StartError if the folder cannot be made."""
    try:
        return LogBook(ROOT / settings.log_dir, console, settings.log_format)
    except OSError as error:
        raise StartError(f"the log files cannot be written ({error}); name another folder with LOG_DIR") from error


def _require_free(settings: Settings) -> None:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
                raise StartError(f"HOST={settings.host} is no address of this machine ({error.strerror})") from error
            raise StartError(
                f"cannot listen on {settings.host}:{settings.port} ({error.strerror}); choose another with PORT=8001"
            ) from error


def _healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=PROBE_S, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _why_not(log: LogBook, what: str, dead: list[str]) -> str:
    if not dead:
        return f"{what} does not answer after {START_S:.0f} s; see the logs in {log.folder}"
    lines = "\n".join(f"{name}: {line}" for name in dead for line in log.last_lines(name).splitlines())
    return f"{what} did not start because {', '.join(dead)} ended:\n{lines}\nThe whole of it is in {log.folder}"
