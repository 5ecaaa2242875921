"""Where a source's own code makes its tensors."""

from __future__ import annotations

from enum import StrEnum


class DrawOn(StrEnum):
    """The device under test, or its host. The random numbers of the two differ under one seed.

    In a request it is where `get_inputs()`, `get_init_inputs()` and constructors shall make the tensors whose device
    they do not name. In a result it is where they did.
    """

    DEVICE = "device"
    HOST = "host"
