"""What the table of timings says of a job's processes."""

from __future__ import annotations

import pytest

from benchmarks.timing import _within


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([[1.0, 1.0], [2.0, 2.0]], "0.00%"),
        ([[0.99, 1.01]], "1.41%"),
        ([[1.98, 2.02], [99.0, 101.0], [5.0]], "1.41%"),
        ([[1.0], []], ""),
    ],
)
def test_what_processes_of_a_job_differ_by_is_free_of_what_jobs_do(jobs: list[list[float]], said: str) -> None:
    assert _within(jobs) == said
