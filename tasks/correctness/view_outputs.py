"""Answers that a candidate does not make, where its reference does: views of what it was given."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.runtime.kernel_run import KernelRun

VIEWS = (
    "output {numbers}: a view of an input, where the reference makes a tensor of its own; whoever reads it does the "
    "work, and no time here is that of writing it"
)


def left_to_readers(contenders: Sequence[KernelRun]) -> str | None:
    """What a reader has to know of a candidate's time, by both runners' word; a reference comes first."""
    probes = [contender.probe for contender in contenders if contender.probe is not None and contender.probe.returned]
    if len(probes) < 2:
        return None
    made, answered = (probe.views for probe in probes)
    numbers = [
        str(number)
        for number, (want, got) in enumerate(zip(made, answered, strict=False))
        if want is None and got is not None
    ]
    return VIEWS.format(numbers=", ".join(numbers)) if numbers else None
