"""The main loop of a runner: it handles the referee's messages until the channel is closed."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict
from pathlib import Path

from backends.code_listings import MAX_CODES, CodeText, listings
from backends.source import error_report
from backends.triton import cache
from domain.fault import OutputFault
from domain.listing import Form
from sandbox.protocol.channel import READY, Channel, ChannelClosed, Message
from sandbox.runner.runner import Runner

DOING = {"build": "building", "load": "loading", "cases": "making cases", "inputs": "making inputs"} | {
    op: "running" for op in ("probe", "window")
}


def serve(channel: Channel, folder: Path) -> None:
    """Handles messages until the referee closes the channel. The submission's exceptions become fault replies.

    It first reports that it is ready: the submission cannot have caused a death before that.
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
            # Looked up now, as any caller would: a submission may have replaced the method.
            reply = (
                list_code(folder, message) if message["op"] == "listings" else getattr(runner, message["op"])(message)
            )
        except ChannelClosed:
            return
        except BaseException as error:
            doing = DOING.get(message["op"], "answering the referee")
            fault = error_report.fault(error, doing, runner.folder, runner.target)
            reply = {
                "op": "fault",
                "status": fault.status.value,
                "message": fault.message,
                "log": fault.log,
                "compiled": fault.compiled,
                "lacks": fault.lacks,
                "output": isinstance(fault, OutputFault),
            }
        if runner.freed_bytes:
            reply["freed"], runner.freed_bytes = runner.freed_bytes, 0
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        try:
            channel.send(reply)
        except ChannelClosed:
            return


def list_code(folder: Path, message: Message) -> Message:
    """Texts in the requested forms, reasons for those that are unavailable, and the data that Triton's kernels need.

    It reads the code that the build left in the folder, and runs nothing of the submission.
    """
    results = listings(folder, [Form(form) for form in message["forms"]])
    return {
        "op": "listings",
        "found": [asdict(one) for one in results if isinstance(one, CodeText)],
        "kernels": cache.list_resources(folder, message["arch"], MAX_CODES),
        "lacking": [asdict(one) for one in results if not isinstance(one, CodeText)],
    }
