"""Whether this machine can run the trial, and the Debian packages that it needs for that."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.compose import namespaced_command
from tests.compose.project import tool

ENGINE = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "debootstrap": "debootstrap",
    "iptables-save": "iptables",
    "ip": "iproute2",
    "update-ca-certificates": "ca-certificates",
}
LONG = {**ENGINE, "openssl": "openssl", "promtool": "prometheus"}
"""Programs, and the Debian packages that have them. The tool of compose is looked for by its own name."""

SPACE = 12 << 30
"""Bytes: images, their layers and volumes take 7 GB."""

APT_S = 180.0
POLICY = Path("/usr/sbin/policy-rc.d")
ADMINISTRATOR = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def extend_path() -> None:
    """The folders of an administrator's programs, which the PATH of a service may lack."""
    given = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join([*given, *(folder for folder in ADMINISTRATOR if folder not in given)])


def missing(programs: Mapping[str, str]) -> list[str]:
    """The Debian packages that have to be installed first."""
    packages = {package for program, package in programs.items() if shutil.which(program) is None}
    if shutil.which("docker") is None and _packaged("docker-cli"):
        packages.add("docker-cli")  # Since Debian 13 it is not in docker.io.
    return sorted(packages | (set() if tool() else {"docker-compose"}))


def unsuited(user: int, release: str) -> str | None:
    """Why a user of this id cannot run a trial on a system with this text in /etc/os-release; None where he can."""
    if user != 0:
        return "it needs root"
    if "ID=debian" not in release.splitlines():
        return "it needs Debian, for an engine and base images from Debian's packages"
    return None


def obstacle(programs: Mapping[str, str], folder: Path, *, install: bool) -> str | None:
    """Why no trial can run on this machine, with images in that folder; None where it can.

    Installs the packages that are missing if asked to.
    """
    release = Path("/etc/os-release")
    text = release.read_text(encoding="utf-8") if release.exists() else ""
    if reason := unsuited(os.geteuid(), text):
        return reason
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    if (free := shutil.disk_usage(there).free) < SPACE:
        return f"it needs {SPACE >> 30} GiB of disk space in {there}, and {free >> 30} are free"
    if install and missing(programs) and (reason := _install(programs)):
        return reason
    if needed := missing(programs):
        return f"first `apt-get install {' '.join(needed)}`"
    tried = subprocess.run([*namespaced_command.UNSHARE, "true"], capture_output=True, text=True, check=False)
    return f"it needs namespaces: {_last(tried.stderr)}" if tried.returncode != 0 else None


def _install(programs: Mapping[str, str]) -> str | None:
    """Why the packages that are missing cannot be installed; None once they are."""
    with _no_service_started():
        _apt("update")  # Its own failure says nothing: a source that cannot be reached need not be the one.
        print(f"apt-get install {' '.join(missing(programs))}", file=sys.stderr, flush=True)
        return _apt("install", "--yes", "--no-install-recommends", *missing(programs))


def _apt(*command: str) -> str | None:
    """Why apt-get failed; None where it has not."""
    try:
        done = subprocess.run(
            ["apt-get", "--quiet", "--option", "DPkg::Lock::Timeout=60", *command],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=APT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"`apt-get {' '.join(command)}` took longer than {APT_S:.0f} s"
    return f"`apt-get {' '.join(command)}`: {_last(done.stderr)}" if done.returncode != 0 else None


def _packaged(package: str) -> bool:
    return subprocess.run(["apt-cache", "show", package], capture_output=True, check=False).returncode == 0


@contextmanager
def _no_service_started() -> Iterator[None]:
    """The packages bring services, which would be started at once: Debian's own way to prevent that."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            POLICY.unlink()


def _last(text: str) -> str:
    """The last line that is not empty."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")
