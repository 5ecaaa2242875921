"""The page of a batch: a grid of verdicts, the distribution of speed-ups, and the other jobs grouped by cause."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from api.pages.several_jobs.distribution import distribution
from api.pages.several_jobs.rows import JobRow, rows
from api.pages.verdict import GOOD, OPEN
from domain.result import first_line
from tasks.jobs.job_view import JobView

CAUSE_CHARS = 160
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d[\d.,]*")


@dataclass(frozen=True)
class Group:
    """Jobs with the same verdict or state, and the same message but for its numbers; `cause` is the first one's."""

    word: str
    tone: str
    cause: str
    rows: list[JobRow]


def template_values(batch_id: str, views: Sequence[JobView], now: float) -> dict[str, Any]:
    """The values of the template `batch.html`; `views` in the order of the batch's bodies, `now` in epoch seconds."""
    all_rows = rows(views, now)
    passed = [row for row in all_rows if row.tone == GOOD]
    unfinished = sum(row.tone == OPEN for row in all_rows)
    fastest = sorted(passed, key=lambda row: (row.view.summary and row.view.summary.ci_low) or 0.0, reverse=True)
    return {
        "batch_id": batch_id,
        "rows": all_rows,
        "passed": len(passed),
        "unfinished": unfinished,
        "tone": OPEN if unfinished else GOOD if len(passed) == len(all_rows) else "ours",
        "distribution": distribution(passed),
        "fastest": fastest[:10],
        "groups": _groups(row for row in all_rows if row.tone not in (GOOD, OPEN)),
        "now": now,
    }


def _groups(failed: Iterable[JobRow]) -> list[Group]:
    """The largest group first."""
    groups: dict[tuple[str, str], Group] = {}
    for row in failed:
        error = first_line((row.view.summary and row.view.summary.error) or row.view.error, CAUSE_CHARS)
        same = groups.setdefault((row.word, _NUMBER.sub("#", error)), Group(row.word, row.tone, error, []))
        same.rows.append(row)
    return sorted(groups.values(), key=lambda group: -len(group.rows))
