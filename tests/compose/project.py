"""docker-compose.yml as an operator runs it: a `.env` of its own, builds, keys, and what its containers are."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from domain.paths import ROOT
from tests.compose import base
from tests.compose.engine import Engine

BUILT = ("api", "flower", "worker-cpu")
CERTIFICATES = f"--cert /{base.CERTIFICATES}"


def tool() -> list[str]:
    """COMPOSE, else compose 2 as Docker's plugin, else the program of that name; empty where there is none."""
    if "COMPOSE" in os.environ:
        return shlex.split(os.environ["COMPOSE"])
    if shutil.which("docker") and subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0:
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def own_address() -> str:
    """Of this machine, as another would reach it. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


def pip_arguments() -> str:
    """Of every build: the certificates that this machine trusts, and PIP_ARGS."""
    return f"{CERTIFICATES} {os.environ.get('PIP_ARGS', '')}".strip()


@contextmanager
def wheels(kept: Path) -> Iterator[str]:
    """Arguments of pip for the folder that PIP_FIND_LINKS names, served while the images are built.

    The port is written into `kept`, the engine's folder, and used again where it is free: an
    argument of a build that changes from run to run would make each run install every package anew.
    """
    folder = os.environ.get("PIP_FIND_LINKS", "")
    if not Path(folder).is_dir():
        yield pip_arguments()
        return

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    def serving(port: int) -> ThreadingHTTPServer:
        return ThreadingHTTPServer(("127.0.0.1", port), lambda *given: Quiet(*given, directory=folder))

    before = kept / "wheels.port"
    try:
        server = serving(int(before.read_text()) if before.exists() else 0)
    except OSError:
        server = serving(0)
    before.write_text(str(server.server_port))
    with server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"{pip_arguments()} --find-links http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@dataclass
class Project:
    """One project of compose on that engine. Its `.env` and what is laid over the file are in `folder`."""

    engine: Engine
    folder: Path
    name: str
    variables: dict[str, str]

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        # --network host: a build reaches what this machine reaches, whatever is forwarded.
        over = {"services": {name: {"build": {"network": "host"}} for name in BUILT}}
        (self.folder / "over.yml").write_text(json.dumps(over))
        (self.folder / "metrics.key").write_text("")
        self.write()

    def write(self, **more: str) -> None:
        """The `.env`, with these too."""
        self.variables.update(more)
        with os.fdopen(os.open(self.folder / ".env", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
            file.writelines(f"{name}={value}\n" for name, value in self.variables.items())

    def command(self, *arguments: str) -> list[str]:
        files = ["--file", str(ROOT / "docker-compose.yml"), "--file", str(self.folder / "over.yml")]
        return [*tool(), "--project-name", self.name, "--env-file", str(self.folder / ".env"), *files, *arguments]

    def compose(self, *arguments: str) -> str:
        """What it prints; raises subprocess.CalledProcessError, whose `stderr` says why."""
        done = subprocess.run(
            self.command(*arguments), cwd=ROOT, env=self.engine.environment, text=True, capture_output=True, check=True
        )
        return done.stdout.strip()

    def key(self, name: str, *scopes: str) -> str:
        """A new API key."""
        asked = [word for scope in scopes for word in ("--scope", scope)]
        return self.compose("run", "--rm", "-T", "keys", "add", name, *asked).splitlines()[-1].strip()

    def containers(self, service: str) -> list[str]:
        """Their ids."""
        return self.compose("ps", "--quiet", service).split()

    def inspected(self, service: str) -> dict[str, Any]:
        (found,) = json.loads(self.engine.docker("inspect", self.containers(service)[0]))
        return found  # type: ignore[no-any-return]

    @cached_property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.variables['API_PORT']}"

    def down(self) -> None:
        """Its containers and volumes; whatever runs in them is killed."""
        self.compose("down", "--volumes", "--timeout", "1", "--remove-orphans")


def first(engine: Engine, folder: Path, pip: str, traces: str) -> Project:
    """A node with everything, on ports of the loopback interface; its Redis where other nodes reach it."""
    password, ports = secrets.token_hex(24), ("API", "REDIS", "FLOWER", "PROMETHEUS", "GRAFANA")
    return Project(
        engine,
        folder / "first",
        "first",
        {
            "COMPOSE_PROFILES": "cpu",
            "REDIS_PASSWORD": password,
            "CELERY_BROKER_URL": f"redis://:{password}@redis:6379/0",
            "FLOWER_BASIC_AUTH": f"operator:{secrets.token_hex(12)}",
            "REDIS_BIND": own_address(),
            "OTEL_EXPORTER_OTLP_ENDPOINT": traces,
            "METRICS_KEY_FILE": str(folder / "first" / "metrics.key"),
            **{f"{name}_PORT": str(free_port()) for name in ports},
            **{"API_BASE": base.BASE, "CPU_BASE": base.BASE},
            # The index's own files but for the CPU-only torch, which is another file of that version.
            "CPU_HASHES": "off",
            **{"REDIS_IMAGE": base.REDIS, "PROMETHEUS_IMAGE": base.PROMETHEUS},
            **{
                "PIP_ARGS": f"{CERTIFICATES} {os.environ.get('PIP_ARGS', '')}".strip(),
                "CPU_PIP_ARGS": pip,
                "TAG": "before",
            },
        },
    )


def second(engine: Engine, folder: Path, node: Project, name: str = "second", **more: str) -> Project:
    """Another node: it has the images, and of the first one the broker's address alone."""
    address = f"{node.variables['REDIS_BIND']}:{node.variables['REDIS_PORT']}"
    broker = f"redis://:{node.variables['REDIS_PASSWORD']}@{address}/0"
    return Project(
        engine,
        folder / name,
        name,
        {
            "COMPOSE_PROFILES": "cpu",
            "CELERY_BROKER_URL": broker,
            "TAG": node.variables["TAG"],
            "METRICS_KEY_FILE": str(folder / name / "metrics.key"),
            **more,
        },
    )
