"""A fault as a runner tells it: bounded, and never better than a failure."""

from __future__ import annotations

from domain.fault import KernelFault, OutputFault
from domain.result import Status
from sandbox.protocol.channel import Message

MAX_MESSAGE = 8_192
MAX_LOG = 1 << 20

NOT_ITS_OWN = (Status.PASSED, Status.REFERENCE_FAILED)
"""Praise, and blame of the other kernel: whoever trains on verdicts leaves out what its reference failed."""


def reported(message: Message) -> KernelFault:
    """A fault in the runner's own words, bounded: it can only speak ill of its own submission."""
    text, log = str(message.get("message"))[:MAX_MESSAGE], str(message.get("log"))[:MAX_LOG]
    if message.get("output") is True:
        return OutputFault(text, log)
    try:
        status = Status(str(message.get("status")))
    except ValueError:
        status = Status.RUNTIME_ERROR
    if status in NOT_ITS_OWN:
        status = Status.CRASHED
    return KernelFault(status, text, log, compiled=message.get("compiled") is True)
