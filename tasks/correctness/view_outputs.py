"""Answers that a candidate does not make, where its reference does: views of what it was given."""

from __future__ import annotations

from collections.abc import Sequence

from domain.flags import Flag, FlagCode
from tasks.runtime.kernel_run import Contender

VIEWS = (
    "output {numbers} is a view of an input, where the reference makes a new tensor: its reader does the work, and the "
    "time does not include it"
)


def left_to_readers(contenders: Sequence[Contender]) -> Flag | None:
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
    if not numbers:
        return None
    outputs = ", ".join(numbers)
    return Flag(FlagCode.OUTPUT_IS_INPUT_VIEW, VIEWS.format(numbers=outputs), {"outputs": outputs})
