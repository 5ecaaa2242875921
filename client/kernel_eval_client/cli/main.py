"""The command line: its commands and options, and what becomes of an error."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kernel_eval_client.cli import streams
from kernel_eval_client.cli.exits import MEANINGS
from kernel_eval_client.job import TERMINAL
from kernel_eval_client.kernel import KernelType
from kernel_eval_client.suites.reading import LAYOUTS

LEVELS = ("basic", "full")
FORMS = ("ptx", "sass", "ttir", "ttgir", "llir")
STATES = sorted({"queued", "building", "waiting", "running"} | TERMINAL)


def run() -> None:
    """The installed command. What it dies of is printed by Python, behind its end."""
    streams.clean()
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    with streams.cleaned():
        given = parser().parse_args(arguments)
        try:
            from kernel_eval_client.cli.dispatch import dispatch
        except ModuleNotFoundError as error:
            if error.name != "rich":
                raise
            sys.stderr.write("kernel-eval needs rich: pip install 'kernel-eval-client[cli]'\n")
            return 2
        return dispatch(given)


def parser() -> argparse.ArgumentParser:
    """All commands."""
    top = argparse.ArgumentParser(
        prog="kernel-eval",
        description="Have GPU kernels judged. The API key is read from KERNEL_EVAL_API_KEY.",
        epilog="exit status: " + "; ".join(f"{status:d} {meaning}" for status, meaning in MEANINGS.items()),
    )
    _of_every_command(top)
    top.set_defaults(url=None, json=False, verbose=False, patience=None)
    every = argparse.ArgumentParser(add_help=False)
    _of_every_command(every)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, told: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=told, description=told, parents=[every])

    one = command("evaluate", "Judge one kernel; a .json file is a whole request.")
    one.add_argument("file", type=Path)
    two = command("compare", "Judge a candidate against a reference.")
    two.add_argument("reference", type=Path)
    two.add_argument("candidate", type=Path)
    later = command("submit", "Hand in a kernel and print the job's id.")
    later.add_argument("file", type=Path)
    later.add_argument("--reference", type=Path, help="compare with this source")
    many = command("batch", "Judge every .py, .cu and request .json below a folder.")
    many.add_argument("folder", type=Path)
    many.add_argument("--reference", type=Path, help="compare all sources with this one")
    many.add_argument("--concurrency", type=_count, default=16, metavar="N", help="so many at a time (16)")
    every_problem = command("suite", "Judge every candidate of a suite of problems, and score it.")
    every_problem.add_argument("suite", help="a folder, or `starter`: the forty problems that come along")
    every_problem.add_argument(
        "--candidates", type=Path, metavar="DIR", help="where they are; default: beside the problems"
    )
    every_problem.add_argument("--layout", choices=LAYOUTS, help="default: told by the files that are there")
    every_problem.add_argument("--small", action="store_true", help="small sizes, for a machine without a GPU")
    every_problem.add_argument("--only", action="append", metavar="GLOB", help="problems of this name; may be repeated")
    every_problem.add_argument("--level", action="append", type=int, metavar="N", help="of this level; may be repeated")
    every_problem.add_argument(
        "--candidate", action="append", metavar="LABEL", help="candidates of this name; may be repeated"
    )
    every_problem.add_argument("--results", type=Path, metavar="FILE", help="default: NAME.results.jsonl, here")
    every_problem.add_argument("--again", action="store_true", help="begin that file anew: judge all")
    every_problem.add_argument("--list", action="store_true", help="only say what would be judged")
    every_problem.add_argument("--concurrency", type=_count, default=16, metavar="N", help="so many at a time (16)")
    again = command("watch", "Judge a source now and whenever it is saved; or follow a job to its end.")
    again.add_argument("file", type=Path, metavar="file|job_id")
    again.add_argument("--reference", type=Path, help="compare with this source")
    again.add_argument("--runs", type=_count, metavar="N", help="stop after so many")
    for each in (one, two, later, many, again):
        _judging(each)
    _how(every_problem)
    for each in (two, again):
        _of_reference(each)
    told = command("status", "What a job is doing, and its verdict once there is one.")
    told.add_argument("job_id")
    until = command("wait", "Wait for a job's verdict.")
    until.add_argument("job_id")
    stop = command("cancel", "Cancel jobs.")
    stop.add_argument("job_ids", nargs="+", metavar="job_id")
    for each in (one, two, many, every_problem, again, until, stop):
        each.add_argument("--max-wait", type=_seconds, metavar="S", help="seconds to wait for a verdict at most")
    listed = command("list", "Jobs, newest first.")
    listed.add_argument("--state", choices=STATES)
    listed.add_argument("--batch", metavar="ID", help="of this batch only")
    listed.add_argument("--limit", type=_count, default=20, metavar="N", help="so many (20)")
    page = command("report", "What was found out about a job, once it has ended.")
    page.add_argument("job_id")
    page.add_argument("--html", action="store_true", help="as the service's page; so it is in a file or a pipe")
    page.add_argument("--output", "-o", type=Path, help="the file to write; default: standard output")
    texts = command("artifacts", "The code of a job's kernels and the profiler's reports, where they were asked for.")
    texts.add_argument("job_id")
    texts.add_argument("--output", "-o", type=Path, metavar="DIR", help="write each to DIR/side/name")
    check = command("doctor", "Whether a kernel would be judged now, and how to mend what is in the way.")
    check.add_argument("--quick", action="store_true", help="without judging a small kernel")
    tools = command("mcp", "Tools for agents: an MCP server over standard input and output, or over HTTP.")
    tools.add_argument("--http", action="store_true", help="streamable HTTP, at /mcp")
    tools.add_argument("--host", default="127.0.0.1", metavar="HOST", help="of --http (127.0.0.1)")
    tools.add_argument("--port", type=int, default=8765, metavar="N", help="of --http (8765)")
    return top


def _of_every_command(each: argparse.ArgumentParser) -> None:
    """Taken before the command and behind it: a default there would hide what stood before it."""
    add = partial(each.add_argument, default=argparse.SUPPRESS)
    add("--url", help="the service; default: KERNEL_EVAL_URL, else http://127.0.0.1:8000")
    add("--json", action="store_true", help="JSON on standard output, errors too")
    add("--verbose", "-v", action="store_true", help="the whole compiler log and what the kernel printed")
    add("--patience", type=float, metavar="S", help="seconds to try again when the service does not answer")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError("must be 0 or more")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def _level(text: str) -> str:
    if text not in LEVELS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither basic nor full (before a file: --device-metrics=basic)")
    return text


def _judging(each: argparse.ArgumentParser) -> None:
    kernel = each.add_argument_group("the kernel")
    kernel.add_argument("--type", choices=[str(kind) for kind in KernelType], help="default: guessed from the source")
    kernel.add_argument("--io", type=Path, metavar="FILE", help="its IO contract; default: NAME.io.json beside it")
    kernel.add_argument("--entry", metavar="NAME", help="the kernel or function to call")
    kernel.add_argument(
        "--compiler-option", action="append", default=[], metavar="OPTION", help="cuda; may be repeated"
    )
    _how(each)


def _how(each: argparse.ArgumentParser) -> None:
    how = each.add_argument_group("how to judge")
    how.add_argument("--num-trials", type=int, metavar="N")
    how.add_argument("--timeout", type=int, metavar="S", help="seconds of building, and of running")
    how.add_argument(
        "--target-precision", type=float, metavar="P", help="stop timing at this relative half interval (0.01)"
    )
    how.add_argument("--budget", choices=("quick", "default", "precise"), help="how much of the device to spend")
    how.add_argument("--priority", type=int, metavar="N", help="of two queued jobs the higher is begun first")
    how.add_argument("--gpu", metavar="MODEL", help="the model to run on, such as h200")
    how.add_argument("--reuse", choices=("never", "allow"), help="whether an earlier answer to the same will do")
    how.add_argument("--atol", type=float)
    how.add_argument("--rtol", type=float)
    how.add_argument("--profile", action="store_true", default=None, help="also tell what a call launches")
    how.add_argument(
        "--artifact", dest="artifacts", action="append", choices=FORMS, help="keep the code as text; may be repeated"
    )
    how.add_argument(
        "--device-metrics",
        nargs="?",
        const="basic",
        type=_level,
        metavar="LEVEL",
        help="also tell what the hardware counters say: basic (default) or full",
    )
    how.add_argument("--metric", action="append", metavar="NAME", help="of ncu, beside the basic ones; may be repeated")
    how.add_argument("--sanitize", action="store_true", default=None, help="also run it under compute-sanitizer")
    how.add_argument("--replay-seed", metavar="HEX", help="the inputs of an earlier job")


def _of_reference(each: argparse.ArgumentParser) -> None:
    group = each.add_argument_group("the reference")
    group.add_argument("--reference-type", choices=[str(kind) for kind in KernelType])
    group.add_argument("--reference-io", type=Path, metavar="FILE")
    group.add_argument("--reference-entry", metavar="NAME")
