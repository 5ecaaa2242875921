"""From a parsed command line to the command, and from an error to an exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from kernel_eval_client.cli import artifacts, batch, doctor, jobs, judging, mcp, show, suite, watching
from kernel_eval_client.cli.exits import Exit, exit_of
from kernel_eval_client.cli.session import Session
from kernel_eval_client.cli.streams import behind
from kernel_eval_client.cli.terminal import Terminal
from kernel_eval_client.client import Client
from kernel_eval_client.errors import KernelEvalError
from kernel_eval_client.flow import Retry

PATIENCE_S = {"batch": 300.0, "suite": 300.0}
FEW_S = 10.0
"""A person who waits for one answer wants to be told soon that nobody is there."""

COMMANDS: dict[str, Callable[[Session, argparse.Namespace], Exit]] = {
    "evaluate": judging.evaluate,
    "compare": judging.compare,
    "submit": judging.submit,
    "wait": judging.wait,
    "watch": watching.watch,
    "batch": batch.batch,
    "suite": suite.suite,
    "status": jobs.status,
    "cancel": jobs.cancel,
    "list": jobs.listing,
    "report": jobs.report,
    "artifacts": artifacts.artifacts,
    "doctor": doctor.doctor,
    "mcp": mcp.mcp,
}


def dispatch(given: argparse.Namespace) -> int:
    """Carries out the command; the exit status."""
    out, progress = Terminal(behind(sys.stdout)), Terminal(behind(sys.stderr))
    patience = given.patience if given.patience is not None else PATIENCE_S.get(given.command, FEW_S)
    try:
        with Client(given.url, retry=Retry(patience_s=patience)) as client:
            session = Session(client, out, progress, given.json, given.verbose)
            try:
                return COMMANDS[given.command](session, given)
            except KernelEvalError as error:
                if given.json:
                    session.write({"error": session.told(error)})
                raise
    except KernelEvalError as error:
        show.error(progress, error)
        return exit_of(error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
