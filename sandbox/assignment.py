"""What a runner is told to work on: the submission, where its files are, the device."""

from __future__ import annotations

from pathlib import Path

from backends.backend import Target
from domain.kernel import Kernel
from sandbox.channel import Message
from sandbox.environment import settle_in


def assignment(message: Message) -> tuple[Kernel, Path, Target]:
    """The submission, and its folder: made the current one, and the place of everything that libraries keep."""
    folder = Path(message["folder"])
    settle_in(folder)
    target = Target(message["target"]["device"], message["target"]["arch"])
    return Kernel.from_wire(message["kernel"]), folder, target
