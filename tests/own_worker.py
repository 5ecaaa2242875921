"""A worker for tests, with a state folder of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from domain.settings import settings
from tasks.runtime.worker_context import WorkerContext


@contextmanager
def own_worker() -> Iterator[WorkerContext]:
    """Open inside the block; what it wrote is gone afterwards."""
    with tempfile.TemporaryDirectory() as state, pytest.MonkeyPatch.context() as patch:
        patch.setenv("STATE_DIR", state)
        settings.cache_clear()
        worker = WorkerContext()
        try:
            yield worker
        finally:
            worker.close()
    settings.cache_clear()
