"""The compilers of this node's builds: their folder, what identifies them, headers precompiled in the background."""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import os
import platform
import subprocess
import sys
from functools import cache, cached_property
from pathlib import Path

import torch

from backends.extensions import toolchain
from domain.paths import ROOT
from domain.settings import settings
from sandbox.isolation.rlimits import die_with_parent

BACKGROUND = 19
_PACKAGES = ("torch", "triton", "cupy-cuda13x", "numpy", "ninja", "nvidia-cuda-nvrtc", "nvidia-cuda-cccl", "setuptools")
_BUILDING_CODE = ("backends", "sandbox", "domain")

log = logging.getLogger(__name__)


class Compilers:
    """Prepared below `parent` when made. `folder` is None where extensions are built the stock way alone."""

    def __init__(self, parent: Path) -> None:
        self.folder: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._told = False
        try:
            found = toolchain.prepare(parent)
            self.folder = str(found) if found is not None else None
        except OSError as error:
            log.warning("extensions are built with stock headers: %s", error)

    @cached_property
    def identity(self) -> str:
        """A digest of all that decides what a build makes of a source, the source and its target aside."""
        # By its name, a digest of what is in it: where it lies is each node's own, and in no build.
        folder = Path(self.folder).name if self.folder is not None else ""
        parts = [platform.python_version(), platform.machine(), *platform.libc_ver(), str(torch.version.cuda), folder]
        parts += [f"{name} {_version(name)}" for name in _PACKAGES]
        parts += [f"{tool} {version}" for tool, version in sorted(toolchain.versions().items())]
        for package in _BUILDING_CODE:
            parts += [path.read_text(encoding="utf-8") for path in sorted((ROOT / package).rglob("*.py"))]
        return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()

    def precompile(self) -> None:
        """Has a process of low priority make the headers that are not there yet; returns at once.

        Called again, it says in the log where that has failed: builds go on without, and take longer.
        """
        if self._process is not None:
            if self._process.poll() and not self._told:
                self._told = True
                log.warning("no headers are precompiled: the process for it ended with %s", self._process.returncode)
        elif self.folder is not None and settings().precompile_headers:
            command = [sys.executable, "-m", "tasks.node.toolchain", self.folder]
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},  # noqa: TID251 - the worker's own, handed on
                stdin=subprocess.DEVNULL,
            )

    def close(self) -> None:
        """Ends the process, if it is still at it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@cache
def processor() -> str:
    """What the host's processor can do: that of a build which was made for it alone (`-march=native`)."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        told = (line.partition(":") for line in lines)
        found = {name.strip(): value.strip() for name, _, value in told}
    return found.get("flags") or found.get("Features") or platform.machine()


@cache
def without_driver() -> str | None:
    """Why Triton cannot link here what launches its kernels; None where it can, as the driver's library is there."""
    from triton.backends.nvidia.driver import libcuda_dirs

    try:
        libcuda_dirs()
    except (AssertionError, OSError, subprocess.CalledProcessError) as error:
        return str(error).partition("\n")[0]
    return None


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


if __name__ == "__main__":
    die_with_parent(os.getppid())
    os.nice(BACKGROUND)
    toolchain.precompile_all(Path(sys.argv[1]))
