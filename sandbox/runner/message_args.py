"""What a runner is told to work on: the submission, and the device."""

from __future__ import annotations

from backends.base import Target
from domain.kernel import Kernel
from sandbox.protocol.channel import Message


def assignment(message: Message) -> tuple[Kernel, Target]:
    """The submission, and what it is for."""
    given = message["target"]
    return Kernel.from_wire(message["kernel"]), Target(given["device"], given["arch"], given["toolchain"])
