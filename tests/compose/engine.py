"""A Docker Engine of our own: its data, its socket and its networks. What it leaves, `confined` removes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_S = 60.0
STOP_S = 60.0
POLL_S = 0.2
DRIVERS = ("overlay2", "overlayfs", "btrfs", "zfs")
"""Of storage: layers are not copied. `vfs` copies gigabytes for each."""
KINDS = (("container", ["--all"]), ("network", ["--filter", "type=custom"]), ("volume", []))


class EngineError(Exception):
    """This machine cannot run an engine or its containers; the message says why in a line."""


def version() -> bytes:
    """Of the installed engine."""
    return subprocess.run(["dockerd", "--version"], capture_output=True, check=True).stdout


@dataclass(frozen=True)
class Engine:
    """Addressed by its socket alone: no variable and no context of the machine's own Docker counts."""

    folder: Path
    runtime: Path

    @property
    def environment(self) -> dict[str, str]:
        given = {name: value for name, value in os.environ.items() if not name.startswith(("DOCKER_", "COMPOSE"))}
        return {**given, "DOCKER_HOST": f"unix://{self.runtime}/socket"}

    def docker(self, *arguments: str, text: str | None = None) -> str:
        """What it prints; raises subprocess.CalledProcessError, whose `stderr` says why."""
        done = subprocess.run(
            ["docker", *arguments], env=self.environment, input=text, text=True, capture_output=True, check=True
        )
        return done.stdout.strip()

    def image(self, name: str, dockerfile: str) -> None:
        """Built from that text, without a context."""
        # The old builder reads a Dockerfile from stdin as BuildKit does, and needs no plugin of the client.
        plain = {**self.environment, "DOCKER_BUILDKIT": "0"}
        subprocess.run(
            ["docker", "build", "--network", "host", "--tag", name, "-"],
            env=plain, input=dockerfile, text=True, capture_output=True, check=True,
        )  # fmt: skip

    def answers(self) -> bool:
        return (
            subprocess.run(["docker", "info"], env=self.environment, capture_output=True, check=False).returncode == 0
        )

    def left(self) -> list[tuple[str, list[str]]]:
        """The containers, volumes and networks that there are, but for the engine's own: by kind, in the order in
        which they can be removed."""
        listed = [(kind, self.docker(kind, "ls", "--quiet", *which).split()) for kind, which in KINDS]
        return [(kind, names) for kind, names in listed if names]

    def clear(self) -> None:
        """Removes them: containers of a run that was killed would be started again. Images stay."""
        for kind, names in self.left():
            self.docker(kind, "rm", *(["--force"] if kind != "network" else []), *names)

    def try_container(self, image: str) -> None:
        """One that does nothing, in a network of its own; raises EngineError where this machine cannot run it."""
        try:
            self.docker("network", "create", "try")
            self.docker("run", "--rm", "--init", "--network", "try", "--publish", "127.0.0.1::80", image, "true")
            self.docker("network", "rm", "try")
        except subprocess.CalledProcessError as error:
            raise EngineError(f"the engine runs no container here: {failure_reason(error.stderr)}") from error


@contextmanager
def engine(folder: Path, runtime: Path) -> Iterator[Engine]:
    """Running inside the block, with its data in `folder` and its sockets in `runtime`; raises EngineError.

    The path of `runtime` has to be short: a socket's may have 107 bytes. Its control groups have the name of it.
    """
    made, log = Engine(folder, runtime), folder / "dockerd.log"
    with log.open("wb") as sink:
        server = subprocess.Popen(
            [
                "dockerd", "--data-root", str(folder / "data"), "--exec-root", str(runtime / "exec"),
                "--pidfile", str(runtime / "pid"), "--host", f"unix://{runtime}/socket",
                # Each project makes the network that it needs; docker0 may be another engine's.
                "--bridge", "none",
                # systemd, which knows nothing of this namespace of processes, is not asked for groups.
                "--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", f"/{runtime.name}",
            ],
            stdout=sink, stderr=sink,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + START_S
        while not made.answers():
            if server.poll() is not None or time.monotonic() > deadline:
                raise EngineError(f"dockerd does not start: {failure_reason(log.read_text(errors='replace'))}")
            time.sleep(POLL_S)
        driver = made.docker("info", "--format", "{{.Driver}}")
        if driver not in DRIVERS:
            raise EngineError(f"images can be kept by the storage driver {driver} alone, which copies whole layers")
        made.clear()
        yield made
    finally:
        server.terminate()
        try:
            server.wait(STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def failure_reason(text: str) -> str:
    """Why an engine or a container failed, out of a log or a message: its own words, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    begins = [number for number, line in enumerate(lines) if line.startswith(("failed to start", "docker: Error"))]
    return " ".join(lines[begins[-1] :] if begins else lines[-1:])[:400] or "no message"
