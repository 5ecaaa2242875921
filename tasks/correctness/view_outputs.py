"""Outputs that are views of inputs, where the reference computes a tensor of its own."""

from __future__ import annotations

from collections.abc import Sequence

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from tasks.runtime.kernel_run import KernelRun

VIEWS = (
    "output {numbers} is a view of an input, where the reference makes a new tensor: its reader does the work, and the "
    "time does not include it"
)


def view_outputs_warning(kernel_runs: Sequence[KernelRun]) -> Flag | None:
    """The warning about the candidate's time, from what both runners report; None without such views."""
    probes = [
        kernel_run.probe for kernel_run in kernel_runs if kernel_run.probe is not None and kernel_run.probe.returned
    ]
    if len(probes) < 2:
        return None
    expected_views, actual_views = (probe.views for probe in probes)
    numbers = [
        str(number)
        for number, (want, got) in enumerate(zip(expected_views, actual_views, strict=False))
        if want is None and got is not None
    ]
    if not numbers:
        return None
    outputs = ", ".join(numbers)
    return Flag(FlagCode.OUTPUT_IS_INPUT_VIEW, VIEWS.format(numbers=outputs), {"outputs": outputs})
