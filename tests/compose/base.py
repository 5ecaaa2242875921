"""The base images, where none can be pulled: a small Debian with Python, and on it Redis and Prometheus."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.compose.engine import Engine

RELEASE = os.environ.get("DEBIAN", "bookworm")
MIRROR = os.environ.get("MIRROR", "http://deb.debian.org/debian")
PACKAGES = "ca-certificates,python3,python3-venv"
CERTIFICATES = Path("etc/ssl/certs/ca-certificates.crt")

BASE, REDIS, PROMETHEUS = "debian-python:base", "debian-redis:base", "debian-prometheus:base"
_INSTALL = (
    f"FROM {BASE}\n"
    "RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends {package} "
    "&& rm -rf /var/lib/apt/lists/* && install -d -o {user} -g {user} {folder}\n"
)


def make(engine: Engine, folder: Path) -> None:
    """BASE, REDIS and PROMETHEUS, as docker-compose.yml wants its images; raises subprocess.CalledProcessError.

    None is made where all are there.
    """
    known = engine.docker("images", "--format", "{{.Repository}}:{{.Tag}}").split()
    if {BASE, REDIS, PROMETHEUS} <= set(known):
        return
    root = folder / "root"
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", RELEASE, str(root), MIRROR],
        stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    # Of this machine: a registry that it reaches through an authority of its own is believed there too.
    shutil.copy("/" / CERTIFICATES, root / CERTIFICATES)
    for left in (root / "var/cache/apt/archives", root / "var/lib/apt/lists"):
        shutil.rmtree(left)
        (left / "partial").mkdir(parents=True)
    packed = subprocess.Popen(["tar", "--create", "--directory", str(root), "."], stdout=subprocess.PIPE)
    subprocess.run(
        ["docker", "import", "-", BASE], env=engine.environment, stdin=packed.stdout, check=True, capture_output=True
    )
    if packed.wait() != 0:
        raise subprocess.CalledProcessError(packed.returncode, "tar")
    shutil.rmtree(root)
    # The users and folders of the images that they stand for.
    engine.image(REDIS, _INSTALL.format(package="redis-server", user=999, folder="/data"))
    engine.image(
        PROMETHEUS,
        _INSTALL.format(package="prometheus", user=65534, folder="/prometheus") + 'ENTRYPOINT ["prometheus"]\n',
    )
