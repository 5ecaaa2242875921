"""What one short trial leaves for the next: the base as an archive, and the engine's images with their packages."""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.compose import base

SOURCES = (
    *("constraints.txt", "pyproject.toml", "api.Dockerfile", "worker.Dockerfile", "deploy/install-packages"),
    *(f"hashes/{group}.txt" for group in ("api", "flower", "pip", "worker")),
)
"""Files of the project that decide which packages the images have."""


def default_folder() -> Path:
    """In the user's folder for such things."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "kernel-eval-compose"


def base_key() -> str:
    """Of everything that decides what the base contains, and of the month, so that it is renewed."""
    file = "/" / base.CERTIFICATES
    certificates = file.read_bytes() if file.exists() else b""
    release = [base.RELEASE, base.MIRROR, base.PACKAGES, platform.machine(), f"{datetime.date.today():%Y-%m}"]
    return _digest(*(word.encode() for word in release), certificates)


def images_key(project: Path, engine: bytes) -> str:
    """Of the base, the packages and the version of the engine, in whose format the images are kept."""
    return _digest(base_key().encode(), engine, *((project / name).read_bytes() for name in SOURCES))


def archive(folder: Path) -> Path:
    """Where the base of this key is, or is to be written. Those of other keys are removed."""
    path = folder / f"base-{base_key()}.tar"
    for other in folder.glob("base-*.tar"):
        if other != path:
            other.unlink()
    return path


def images(folder: Path, key: str) -> Path:
    """The engine's folder: empty, where the one that is there has another key."""
    path = folder / "engine"
    if not (path / "key").exists() or (path / "key").read_text(encoding="utf-8") != key:
        clear(folder)
        path.mkdir()
        (path / "key").write_text(key, encoding="utf-8")
    return path


def clear(folder: Path) -> None:
    """Removes the images: those of a trial that failed might be why."""
    if (folder / "engine").exists():
        shutil.rmtree(folder / "engine")


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Whether the folder is this process' alone inside the block."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:16]
