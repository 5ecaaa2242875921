"""The compilers of this node's builds: their folder and their identity."""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import platform
import subprocess
from functools import cache, cached_property
from pathlib import Path

import torch

from backends.extensions import toolchain
from backends.languages import registry
from domain.paths import code_of

_PACKAGES = (
    "torch",
    "triton",
    "cupy-cuda13x",
    "numpy",
    "ninja",
    "nvidia-cuda-nvrtc",
    "nvidia-cuda-cccl",
    "nvidia-cutlass",
    "setuptools",
)
_BUILDING_CODE = ("backends", "sandbox", "domain")

log = logging.getLogger(__name__)


class Compilers:
    """Prepares a toolchain below `parent`. `folder` is None if extensions are built with stock headers only."""

    def __init__(self, parent: Path) -> None:
        self.folder: str | None = None
        try:
            folder = toolchain.prepare(parent)
            self.folder = str(folder) if folder is not None else None
        except OSError as error:
            log.warning("extensions are built with stock headers: %s", error)

    @cached_property
    def identity(self) -> str:
        """A digest of everything except source and target that determines a build's output."""
        # The folder's name is a digest of its contents; its location differs between nodes and is in no build.
        folder = Path(self.folder).name if self.folder is not None else ""
        parts = [platform.python_version(), platform.machine(), *platform.libc_ver(), str(torch.version.cuda), folder]
        parts += [f"{name} {_version(name)}" for name in (*_PACKAGES, *registry.PACKAGES)]
        parts += [f"{tool} {version}" for tool, version in sorted(toolchain.versions().items())]
        return hashlib.blake2b("\0".join(parts).encode() + code_of(_BUILDING_CODE), digest_size=16).hexdigest()


@cache
def processor() -> str:
    """Features of the host's processor: builds with `-march=native` only run on the same."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        pairs = (line.partition(":") for line in lines)
        fields = {name.strip(): value.strip() for name, _, value in pairs}
    return fields.get("flags") or fields.get("Features") or platform.machine()


@cache
def missing_driver() -> str | None:
    """Why Triton cannot link its kernel launchers here; None if the driver's library is present."""
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
