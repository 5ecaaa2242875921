"""Finds jobs by what their records say; only names have an index, so each search reads a bounded number of records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from domain.job import State
from tasks.jobs.job_store import JobStore
from tasks.jobs.job_view import JobView

MAX_SEARCHED = 2000
"""Maximum records that one search reads; its cursor continues from there."""
CHUNK = 500
"""Records read in one round trip."""


@dataclass(frozen=True)
class JobFilter:
    """Conditions on a job; None admits every job.

    `reference` is the first digits of the reference's digest, `name` the whole name.
    `text` occurs somewhere in what a list shows of the job, in upper or lower case.
    """

    state: State | None = None
    verdict: str | None = None
    kernel_type: str | None = None
    reference: str | None = None
    name: str | None = None
    text: str | None = None

    def matches(self, view: JobView) -> bool:
        """Whether the job fulfils all conditions."""
        one = view.summary
        return (
            self.state in (None, view.state)
            and self.verdict in (None, one and one.verdict)
            and self.kernel_type in (None, view.kernel_type)
            and self.name in (None, view.name)
            and (self.reference is None or ((one and one.reference) or "").startswith(self.reference))
            and (self.text is None or self.text.casefold() in _shown_text(view).casefold())
        )


@dataclass(frozen=True)
class Found:
    """Matching jobs, the newest first. `cursor` is the `submitted_at` after which a search continues; None: the end."""

    views: list[JobView]
    searched: int
    cursor: float | None


def search(
    records: JobStore,
    conditions: JobFilter,
    *,
    limit: int,
    batch_id: str | None = None,
    key_id: str | None = None,
    before: float | None = None,
) -> Found:
    """The newest `limit` matching jobs of an API key, a batch or all, submitted before `before` (epoch seconds)."""
    views: list[JobView] = []
    searched, last = 0, before
    for view in _newest(records, conditions, batch_id, key_id, before, min(limit + 1, CHUNK)):
        if len(views) == limit or searched == MAX_SEARCHED:
            return Found(views, searched, last)
        searched, last = searched + 1, view.submitted_at
        if conditions.matches(view):
            views.append(view)
    return Found(views, searched, None)


def _newest(
    records: JobStore, conditions: JobFilter, batch_id: str | None, key_id: str | None, before: float | None, first: int
) -> Iterator[JobView]:
    """The jobs of the smallest index, the newest first; `first` of them come in the first round trip."""
    state = None if batch_id or key_id or conditions.name else conditions.state  # Only one index can be read.
    listed, chunk = partial(records.list, state=state, batch_id=batch_id, key_id=key_id, name=conditions.name), first
    while page := listed(limit=chunk, before=before):
        yield from page
        before, chunk = page[-1].submitted_at, CHUNK


def _shown_text(view: JobView) -> str:
    one = view.summary
    searched = [view.job_id, view.name, view.batch_id, view.worker, view.error]
    if one is not None:
        searched += [one.kernel, one.device, one.candidate, one.reference, one.error]
    return "\n".join(filter(None, searched))
