"""Parses the part of a message that says what to work on: the submission and the device."""

from __future__ import annotations

from backends.base import Target
from domain.draw_on import DrawOn
from domain.kernel import Kernel
from sandbox.protocol.channel import Message


def assignment(message: Message) -> tuple[Kernel, Target]:
    """The submission, and the target that it is built for."""
    fields = message["target"]
    target = Target(fields["device"], fields["arch"], fields["toolchain"], DrawOn(fields["draw_on"]))
    return Kernel.from_wire(message["kernel"]), target
