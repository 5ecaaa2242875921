"""A Docker Engine of our own: its data, its socket and its networks, and nothing left of it afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_S = 60.0
STOP_S = 60.0
POLL_S = 0.2
NEEDED = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "debootstrap": "debootstrap",
    "iptables-save": "iptables",
    "openssl": "openssl",
    "promtool": "prometheus",
}
"""Programs, and the Debian packages that have them. The tool of compose is looked for by its own name."""
FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
EMPTY = {
    "filter": "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n",
    "nat": "*nat\n:PREROUTING ACCEPT\n:INPUT ACCEPT\n:OUTPUT ACCEPT\n:POSTROUTING ACCEPT\nCOMMIT\n",
}
"""What iptables-save says nothing of."""


class EngineError(Exception):
    """It did not start; the message has the end of its log."""


def missing() -> list[str]:
    """The Debian packages that have to be installed first."""
    return sorted({package for program, package in NEEDED.items() if shutil.which(program) is None})


@dataclass(frozen=True)
class Engine:
    """Addressed by its socket alone: no variable and no context of the machine's own Docker counts."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        given = {name: value for name, value in os.environ.items() if not name.startswith(("DOCKER_", "COMPOSE"))}
        return {**given, "DOCKER_HOST": f"unix://{self.folder}/socket"}

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


@contextmanager
def engine(folder: Path) -> Iterator[Engine]:
    """Running inside the block, with all that it makes in that folder; raises EngineError."""
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    forward = FORWARD.read_text()
    made, log = Engine(folder), folder / "dockerd.log"
    with log.open("wb") as sink:
        server = subprocess.Popen(
            [
                "dockerd", "--data-root", str(folder / "data"), "--exec-root", str(folder / "exec"),
                "--pidfile", str(folder / "pid"), "--host", f"unix://{folder}/socket",
                # Each project makes the network that it needs; docker0 may be another engine's.
                "--bridge", "none",
            ],
            stdout=sink, stderr=sink,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + START_S
        while not made.answers():
            if server.poll() is not None or time.monotonic() > deadline:
                raise EngineError("dockerd did not start:\n" + "\n".join(log.read_text().splitlines()[-5:]))
            time.sleep(POLL_S)
        yield made
    finally:
        server.terminate()
        try:
            server.wait(STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
        # Of its own it leaves chains and a policy. Another engine's would be lost with them, so they stay then.
        if ":DOCKER" not in rules:
            untouched = "".join(text for table, text in EMPTY.items() if f"*{table}\n" not in rules)
            subprocess.run(["iptables-restore"], input=untouched + rules, text=True, check=True)
            FORWARD.write_text(forward)
        _unmount(folder)


def _unmount(folder: Path) -> None:
    """What was mounted below it and outlives the engine: its own namespace of networks; a bootstrap cut short."""
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for path in reversed([path for path in mounted if path.startswith(f"{folder}/")]):
        subprocess.run(["umount", "--lazy", path], check=True)
