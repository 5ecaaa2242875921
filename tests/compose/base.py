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
# The users and folders of the images that they stand for.
_ON_BASE = {
    REDIS: _INSTALL.format(package="redis-server", user=999, folder="/data"),
    PROMETHEUS: _INSTALL.format(package="prometheus", user=65534, folder="/prometheus") + 'ENTRYPOINT ["prometheus"]\n',
}


def make(engine: Engine, archive: Path, *others: str) -> None:
    """BASE, and of REDIS and PROMETHEUS those that are named, as docker-compose.yml wants its images.

    What is there is not made again: the images in the engine, and `archive`, the base as a tar file.
    Raises subprocess.CalledProcessError.
    """
    known = engine.docker("images", "--format", "{{.Repository}}:{{.Tag}}").split()
    if BASE not in known:
        if not archive.exists():
            bootstrap(archive)
        engine.docker("import", str(archive), BASE)
    for name in others:
        if name not in known:
            engine.image(name, _ON_BASE[name])


def bootstrap(archive: Path) -> None:
    """Fetches the base's packages and writes their files; raises subprocess.CalledProcessError."""
    root = archive.with_suffix(".root")
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", RELEASE, str(root), MIRROR],
        stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    # Of this machine: a registry that it reaches through an authority of its own is believed there too.
    shutil.copy("/" / CERTIFICATES, root / CERTIFICATES)
    # As in Debian's own images: no fsync for each file of a package.
    (root / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n", encoding="utf-8")
    for left in (root / "var/cache/apt/archives", root / "var/lib/apt/lists"):
        shutil.rmtree(left)
        (left / "partial").mkdir(parents=True)
    unfinished = archive.with_suffix(".part")
    subprocess.run(["tar", "--create", "--directory", str(root), "--file", str(unfinished), "."], check=True)
    unfinished.rename(archive)
    shutil.rmtree(root)
