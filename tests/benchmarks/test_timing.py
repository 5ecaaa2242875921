"""What the table of timings says of a job's processes."""

from __future__ import annotations

import pytest

from benchmarks.timing import spread_within_jobs


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([[1.0, 1.0], [2.0, 2.0]], "0.00%"),
        ([[0.99, 1.01]], "1.41%"),
        ([[1.98, 2.02], [99.0, 101.0], [5.0]], "1.41%"),
        ([[1.0], []], ""),
    ],
)
def test_spread_within_jobs_ignores_differences_between_jobs(jobs: list[list[float]], said: str) -> None:
    assert spread_within_jobs(jobs) == said
