"""One side of a job as the hardware counted it: from ncu's printed report to what stands in an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from profiling.ncu.advice import advice
from profiling.ncu.csv_report import read
from profiling.ncu.kernel_summary import kernel_counters
from profiling.ncu.legacy_metrics import original_metrics

MAX_KERNELS = 32
"""Kernels of a call that are told of, by name; those with the most time."""


def described(printed: str, asked: Sequence[str] = ()) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The side's kernels and advice (`kernels`, `kernels_omitted`, `launches`, `advice`), and the call's figures under
    the original service's names.

    `printed` is ncu's text with counter_choice.PRINTING, `asked` the metrics that the request names. Raises ValueError
    for a text that is no such report, and says what is wrong with it.
    """
    launches = read(printed)
    found = kernel_counters(launches, asked)
    kernels = found[:MAX_KERNELS]
    side = {
        "kernels": [kernel.to_dict() for kernel in kernels],
        "kernels_omitted": len(found) - len(kernels),
        "launches": len(launches),
        "advice": [one.to_dict() for one in advice(kernels)],
    }
    return side, original_metrics(launches)
