"""The worker of a module's jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tasks.runtime.worker_context import WorkerContext


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerContext]:
    """A worker of the module's own, with a gibibyte for each runner; modules with other needs have a fixture for it."""
    from tests.tasks.judging import opened  # Most modules here need no torch.

    yield from opened()
