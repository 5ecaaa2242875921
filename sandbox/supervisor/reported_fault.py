"""Parses a fault that a runner reports: bounded, and never better than a failure."""

from __future__ import annotations

from domain.fault import KernelFault, OutputFault
from domain.result import Lack, Status
from sandbox.protocol.channel import Message

MAX_MESSAGE = 8_192
MAX_LOG = 1 << 20

REFUSED_STATUSES = (Status.PASSED, Status.REFERENCE_FAILED)
"""Statuses that a runner may not report: success, and blame of the other kernel, which hides a failure from training.
"""


def parse_fault(message: Message) -> KernelFault:
    """The reported fault, with bounded texts; it can only harm the runner's own submission."""
    text, log = str(message.get("message"))[:MAX_MESSAGE], str(message.get("log"))[:MAX_LOG]
    if message.get("output") is True:
        return OutputFault(text, log)
    try:
        status = Status(str(message.get("status")))
    except ValueError:
        status = Status.RUNTIME_ERROR
    if status in REFUSED_STATUSES:
        status = Status.CRASHED
    lacks = next((each for each in Lack if status is Status.UNSUPPORTED and each == message.get("lacks")), None)
    return KernelFault(status, text, log, compiled=message.get("compiled") is True, lacks=lacks)
