"""The message that has a runner build, for tests that do not wait for its reply."""

from __future__ import annotations

from dataclasses import asdict

from backends.base import ALONE
from domain.kernel import Kernel
from sandbox.protocol.channel import Message
from sandbox.supervisor.session import Session


def build_request(opened: Session, kernel: Kernel) -> Message:
    return {"op": "build", "task": asdict(ALONE), "kernel": kernel.to_wire(), "target": opened.target.to_wire()}
