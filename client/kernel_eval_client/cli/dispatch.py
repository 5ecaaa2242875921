"""Runs the command that a parsed command line names, and turns an error into an exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from kernel_eval_client.cli import artifacts, batch, doctor, jobs, judging, mcp, show, suite, watching
from kernel_eval_client.cli.exits import Exit, exit_of
from kernel_eval_client.cli.session import Session
from kernel_eval_client.cli.streams import target_of
from kernel_eval_client.cli.terminal import Terminal
from kernel_eval_client.client import Client
from kernel_eval_client.errors import KernelEvalError, KeyRefused
from kernel_eval_client.flow import Retry

KEY_WITHHELD = "KERNEL_EVAL_API_KEY was not sent: it belongs to another URL. Set KERNEL_EVAL_URL to {} too."
PATIENCE_S = {"batch": 300.0, "suite": 300.0}
SINGLE_PATIENCE_S = 10.0
"""Time for which a command about one job tries to reach the service, in s: a person waits for the error."""

COMMANDS: dict[str, Callable[[Session, argparse.Namespace], Exit]] = {
    "evaluate": judging.evaluate,
    "compare": judging.compare,
    "qualify": judging.qualify,
    "submit": judging.submit,
    "wait": judging.wait,
    "confirm": judging.confirm,
    "again": judging.again,
    "watch": watching.watch,
    "batch": batch.batch,
    "suite": suite.suite,
    "status": jobs.status,
    "cancel": jobs.cancel,
    "list": jobs.listing,
    "report": jobs.report,
    "source": jobs.source,
    "artifacts": artifacts.artifacts,
    "doctor": doctor.doctor,
    "mcp": mcp.mcp,
}


def dispatch(arguments: argparse.Namespace) -> int:
    """Runs the command and returns the exit status."""
    out, progress = Terminal(target_of(sys.stdout)), Terminal(target_of(sys.stderr))
    patience = (
        arguments.patience if arguments.patience is not None else PATIENCE_S.get(arguments.command, SINGLE_PATIENCE_S)
    )
    try:
        with Client(arguments.url, retry=Retry(patience_s=patience)) as client:
            session = Session(client, out, progress, arguments.json, arguments.verbose)
            try:
                return COMMANDS[arguments.command](session, arguments)
            except KernelEvalError as error:
                if isinstance(error, KeyRefused) and client.address.withheld:
                    progress.say(KEY_WITHHELD.format(client.address.url))
                if arguments.json:
                    session.write({"error": session.error_object(error)})
                raise
    except KernelEvalError as error:
        show.error(progress, error)
        return exit_of(error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
