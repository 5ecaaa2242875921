"""A runner's life: it answers the referee's messages until the channel is closed."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from backends.source import error_report
from domain.fault import OutputFault
from sandbox.protocol.channel import READY, Channel, ChannelClosed
from sandbox.runner.code_listing import listed
from sandbox.runner.runner import Runner

DOING = {"build": "building", "load": "loading", "inputs": "making inputs", "probe": "running", "window": "running"}


def serve(channel: Channel, folder: Path) -> None:
    """Answers the referee's messages until it closes the channel. An exception of the submission ends the runner.

    It says first that it is ready: what ends a runner before that is no submission's doing.
    """
    runner = Runner(channel, folder)
    try:
        channel.send({"op": READY})
    except ChannelClosed:
        return
    while True:
        try:
            message = channel.receive()
        except ChannelClosed:
            return
        try:
            # Looked up now, as anybody's code would: what a submission puts in a method's place is what answers.
            answer = listed(folder, message) if message["op"] == "listings" else getattr(runner, message["op"])(message)
        except ChannelClosed:
            return
        except BaseException as error:
            doing = DOING.get(message["op"], "answering the referee")
            fault = error_report.fault(error, doing, runner.folder, runner.target)
            answer = {
                "op": "fault",
                "status": fault.status.value,
                "message": fault.message,
                "log": fault.log,
                "compiled": fault.compiled,
                "output": isinstance(fault, OutputFault),
            }
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        try:
            channel.send(answer)
        except ChannelClosed:
            return
