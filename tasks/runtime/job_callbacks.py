"""The calls by which a running job reports progress and learns of a cancellation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from domain.job import Stage


@dataclass(frozen=True)
class JobCallbacks:
    """`on_stage` is called as a stage begins; what it raises ends the job. `cancelled` says whether the job must stop.

    `on_interim_result` gets the interim verdict of a comparison: before timing, and again after all calls.
    """

    on_stage: Callable[[Stage], None] = lambda stage: None
    cancelled: Callable[[], bool] = lambda: False
    on_interim_result: Callable[[bool], None] = lambda right: None
