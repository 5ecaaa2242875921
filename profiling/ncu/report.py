"""Converts ncu's printed report about one kernel of a job to the part of the result about device metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from profiling.ncu.advice import advice
from profiling.ncu.csv_report import read
from profiling.ncu.kernel_summary import kernel_counters
from profiling.ncu.legacy_metrics import original_metrics

MAX_KERNELS = 32
"""Maximum number of kernels in a result; those with the most time."""


def described(printed: str, requested: Sequence[str] = ()) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The side's kernels and advice (`kernels`, `kernels_omitted`, `launches`, `advice`), and the call's figures under
    the original service's names.

    `printed` is ncu's text with profiling.ncu.metrics.PRINTING, `requested` the metrics that the request names. Raises
    ValueError for a text that is no such report, and says what is wrong with it."""
    launches = read(printed)
    summaries = kernel_counters(launches, requested)
    kernels = summaries[:MAX_KERNELS]
    side = {
        "kernels": [kernel.to_dict() for kernel in kernels],
        "kernels_omitted": len(summaries) - len(kernels),
        "launches": len(launches),
        "advice": [one.to_dict() for one in advice(kernels)],
    }
    return side, original_metrics(launches)
