"""One zygote for the tests of this folder, sessions with runners forked from it, and memory to count in."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backends.base import Target
from sandbox.supervisor.session import Session
from sandbox.supervisor.zygote_client import Zygote

MEMORY_LIMIT = 1 << 30
ARENA_LIMIT = 256 << 20


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    started = Zygote(tmp_path_factory.mktemp("zygote"), arch=None, memory_limit=MEMORY_LIMIT)
    yield started
    started.close()


@pytest.fixture
def session(zygote: Zygote, folder: Path) -> Iterator[Callable[..., Session]]:
    """Makes sessions whose runners have that many seconds to live; all are closed afterwards."""
    made: list[Session] = []

    def start(seconds: float = 30.0, cancelled: Callable[[], bool] = lambda: False) -> Session:
        runner = zygote.runner(folder, gpu=True, deadline=time.monotonic() + seconds, cancelled=cancelled)
        made.append(Session(runner, Target("cpu", None), ARENA_LIMIT))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture
def folder(zygote: Zygote, tmp_path: Path) -> Path:
    return zygote.private_folder(tmp_path / "job")


@pytest.fixture
def counters(tmp_path: Path) -> Iterator[mmap.mmap]:
    """In `shared`, for processes of tests/sandbox/counting.py."""
    (tmp_path / "shared").write_bytes(bytes(4))
    with open(tmp_path / "shared", "r+b") as file, mmap.mmap(file.fileno(), 4) as shared:
        yield shared
