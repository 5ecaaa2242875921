"""The inputs of a call: where a source's own code makes them, and which of them decide a verdict (docs/adr/0035)."""

from __future__ import annotations

from enum import StrEnum


class DrawOn(StrEnum):
    """The device under test, or its host. The random numbers of the two differ under one seed.

    In a request it is where `get_inputs()`, `get_init_inputs()` and constructors shall make the tensors whose device
    they do not name. In a result it is where they did.
    """

    DEVICE = "device"
    HOST = "host"


class InputGrade(StrEnum):
    """How far inputs are from those of the task.

    - `AS_DRAWN`: fresh sets of the task's own `get_inputs()` or contract.
    - `AS_STRUCTURED`: varied within what all drawn sets have in common.
    - `BEYOND`: values that the task never draws.
    """

    AS_DRAWN = "as_drawn"
    AS_STRUCTURED = "as_structured"
    BEYOND = "beyond"


class Strictness(StrEnum):
    """The `strictness` of a request: whether inputs beyond the task decide the verdict too."""

    TASK = "task"
    ROBUST = "robust"

    def decides_on(self, grade: InputGrade) -> bool:
        """Whether a failure on inputs of that grade is the verdict; otherwise it is reported beside it."""
        return self is Strictness.ROBUST or grade is not InputGrade.BEYOND
