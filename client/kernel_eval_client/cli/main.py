"""The command line: its commands and their options."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kernel_eval_client.artifact import FORMS
from kernel_eval_client.cli import streams
from kernel_eval_client.cli.brief_parser import BriefParser
from kernel_eval_client.cli.exits import MEANINGS
from kernel_eval_client.job import TERMINAL
from kernel_eval_client.kernel import KernelType
from kernel_eval_client.suites.reading import LAYOUTS
from kernel_eval_client.version import installed_version

LEVELS = ("basic", "full")
STATES = sorted({"queued", "building", "waiting", "running"} | TERMINAL)


def run() -> None:
    """The installed command `kernel-eval`. Python prints an uncaught exception after this function has ended."""
    streams.clean()
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Parses the arguments, runs the command and returns the exit status."""
    with streams.cleaned(), warnings.catch_warnings():
        # Python's remarks about a source that the client only reads, such as an invalid escape sequence.
        warnings.filterwarnings("ignore", module="<unknown>")
        parsed = parse(arguments)
        try:
            from kernel_eval_client.cli.dispatch import dispatch
        except ModuleNotFoundError as error:
            if error.name != "rich":
                raise
            sys.stderr.write("kernel-eval needs rich: pip install 'kernel-eval-client[cli]'\n")
            return 2
        return dispatch(parsed)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments. An unknown option ends the program with the option that it looks like."""
    top = parser()
    if not arguments:
        top.print_help(sys.stderr)
        top.exit(2)
    parsed, unknown = top.parse_known_args(arguments)
    if unknown:
        top.commands[parsed.command].refuse(unknown)
    return parsed


def parser() -> BriefParser:
    """The parser of all commands."""
    top = BriefParser(
        prog="kernel-eval",
        description="Have GPU kernels judged. The API key is read from KERNEL_EVAL_API_KEY.",
        epilog="exit status: " + "; ".join(f"{status:d} {meaning}" for status, meaning in MEANINGS.items()),
    )
    top.add_argument("--version", action="version", version=installed_version())
    _add_common_options(top)
    top.set_defaults(url=None, json=False, verbose=False, patience=None)
    common = BriefParser(add_help=False)
    _add_common_options(common)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, parents=[common])

    evaluate = command("evaluate", "Judge one kernel; a .json file is a whole request.")
    evaluate.add_argument("file", type=Path)
    compare = command("compare", "Judge a candidate against a reference.")
    compare.add_argument("reference", type=Path)
    compare.add_argument("candidate", type=Path, nargs="?", help="not with a request .json in place of the reference")
    qualify = command("qualify", "Say whether a candidate is fit to be merged: right and faster, every time.")
    qualify.add_argument("reference", type=Path)
    qualify.add_argument("candidate", type=Path)
    submit = command("submit", "Submit a kernel and print the job's id.")
    submit.add_argument("file", type=Path)
    submit.add_argument("--reference", type=Path, help="compare with this source")
    batch = command("batch", "Judge every .py, .cu and request .json below a folder.")
    batch.add_argument("folder", type=Path)
    batch.add_argument("--reference", type=Path, help="compare all sources with this one")
    batch.add_argument("--concurrency", type=_count, default=16, metavar="N", help="jobs at a time (16)")
    suite = command("suite", "Judge every candidate of a suite of problems, and score it.")
    suite.add_argument("suite", help="a folder, or `starter`: the forty problems of this package")
    suite.add_argument("--candidates", type=Path, metavar="DIR", help="their folder; default: the problems' own")
    suite.add_argument("--layout", choices=LAYOUTS, help="default: detected from the folder's files")
    suite.add_argument("--small", action="store_true", help="small sizes, for a machine without a GPU")
    suite.add_argument("--only", action="append", metavar="GLOB", help="problems of this name; may be repeated")
    suite.add_argument("--level", action="append", type=int, metavar="N", help="of this level; may be repeated")
    suite.add_argument("--candidate", action="append", metavar="LABEL", help="candidates of this name; may be repeated")
    suite.add_argument("--results", type=Path, metavar="FILE", help="default: NAME.results.jsonl, here")
    suite.add_argument("--again", action="store_true", help="empty that file first: judge all")
    suite.add_argument("--list", action="store_true", help="only list what would be judged")
    suite.add_argument("--concurrency", type=_count, default=16, metavar="N", help="jobs at a time (16)")
    watch = command("watch", "Judge a source now and whenever it is saved; or follow a job to its end.")
    watch.add_argument("file", type=Path, metavar="file|job_id")
    watch.add_argument("--reference", type=Path, help="compare with this source")
    watch.add_argument("--runs", type=_count, metavar="N", help="stop after N judgements")
    for each in (evaluate, compare, qualify, submit, batch, watch):
        _add_kernel_options(each)
    _add_judging_options(suite)
    for each in (compare, qualify, watch):
        _add_reference_options(each)
    status = command("status", "A job's current state, and its verdict if it has one.")
    status.add_argument("job_id")
    wait = command("wait", "Wait for a job's verdict.")
    wait.add_argument("job_id")
    confirm = command("confirm", "Judge a passed comparison again, on other inputs and another card: does it stand?")
    confirm.add_argument("job_id")
    again = command("again", "Judge a job's request again, as a new job on other inputs.")
    again.add_argument("job_id")
    cancel = command("cancel", "Cancel jobs.")
    cancel.add_argument("job_ids", nargs="+", metavar="job_id")
    for each in (evaluate, compare, qualify, batch, suite, watch, wait, confirm, again, cancel):
        each.add_argument(
            "--max-wait", type=_seconds, metavar="S", help="maximum time to wait for a verdict, in seconds"
        )
    listing = command("list", "Jobs, newest first.")
    listing.add_argument("--state", choices=STATES)
    listing.add_argument("--batch", metavar="ID", help="of this batch only")
    listing.add_argument("--limit", type=_count, default=20, metavar="N", help="at most N jobs (20)")
    report = command("report", "The report of a job that has ended.")
    report.add_argument("job_id")
    report.add_argument("--html", action="store_true", help="the service's page; default in a file or a pipe")
    report.add_argument("--output", "-o", type=Path, help="the file to write; default: standard output")
    source = command("source", "The source of a job's kernel, as it was sent.")
    source.add_argument("job_id")
    source.add_argument("--reference", action="store_true", help="that of the reference")
    source.add_argument("--output", "-o", type=Path, help="the file to write; default: standard output")
    artifacts = command(
        "artifacts", "The code of a job's kernels and the profiler's reports, if the request asked for them."
    )
    artifacts.add_argument("job_id")
    artifacts.add_argument("--output", "-o", type=Path, metavar="DIR", help="write each to DIR/side/name")
    doctor = command("doctor", "Check whether the service would judge a kernel now, and name a fix for each problem.")
    doctor.add_argument("--quick", action="store_true", help="without judging a small kernel")
    top.commands = commands.choices
    mcp = command("mcp", "Tools for agents: an MCP server over standard input and output, or over HTTP.")
    mcp.add_argument("--http", action="store_true", help="streamable HTTP, at /mcp")
    mcp.add_argument("--host", default="127.0.0.1", metavar="HOST", help="of --http (127.0.0.1)")
    mcp.add_argument("--port", type=int, default=8765, metavar="N", help="of --http (8765)")
    return top


def _add_common_options(command: argparse.ArgumentParser) -> None:
    """Adds the options that may precede or follow the command. They have no default: it would override the former."""
    add = partial(command.add_argument, default=argparse.SUPPRESS)
    add("--url", help="the service; default: KERNEL_EVAL_URL, else http://127.0.0.1:8000")
    add("--json", action="store_true", help="JSON on standard output, errors too")
    add("--verbose", "-v", action="store_true", help="the whole compiler log and the kernel's own output")
    add("--patience", type=float, metavar="S", help="seconds to keep trying when the service does not answer")


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


def _add_kernel_options(command: argparse.ArgumentParser) -> None:
    kernel = command.add_argument_group("the kernel")
    kernel.add_argument(
        "--type", type=str.lower, choices=[str(kind) for kind in KernelType], help="default: guessed from the source"
    )
    kernel.add_argument("--name", help="for lists and pages; default: the file's path")
    kernel.add_argument(
        "--io",
        type=Path,
        metavar="FILE",
        help="its IO contract; default: NAME.io.json, or the io of a request .json, in its folder",
    )
    kernel.add_argument("--entry", metavar="NAME", help="the kernel or function to call")
    kernel.add_argument(
        "--compiler-option", action="append", default=[], metavar="OPTION", help="cuda; may be repeated"
    )
    _add_judging_options(command)


def _add_judging_options(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("how to judge")
    group.add_argument("--num-trials", type=int, metavar="N")
    group.add_argument("--timeout", type=int, metavar="S", help="seconds of building, and of running")
    group.add_argument(
        "--target-precision", type=float, metavar="P", help="stop timing at this relative half interval (0.01)"
    )
    group.add_argument("--budget", choices=("quick", "default", "precise"), help="how much device time to spend")
    group.add_argument("--priority", type=int, metavar="N", help="the higher of two queued jobs starts first")
    group.add_argument("--gpu", metavar="MODEL", help="the model to run on, such as h200")
    group.add_argument(
        "--reuse", choices=("never", "allow"), help="whether an earlier result of the same request will do"
    )
    group.add_argument(
        "--strictness", choices=("task", "robust"), help="robust: inputs that the task never draws decide too"
    )
    group.add_argument(
        "--baseline",
        dest="baselines",
        action="append",
        choices=("eager", "compile"),
        help="also time the reference so: compile is torch.compile; may be repeated",
    )
    group.add_argument("--atol", type=float)
    group.add_argument("--rtol", type=float)
    group.add_argument("--matched-ratio", type=float, metavar="R", help="minimum share of elements within tolerance")
    group.add_argument(
        "--profile", action="store_true", default=None, help="also list the kernels that a call launches"
    )
    group.add_argument(
        "--artifact", dest="artifacts", action="append", choices=FORMS, help="keep the code as text; may be repeated"
    )
    group.add_argument(
        "--device-metrics",
        nargs="?",
        const="basic",
        type=_level,
        metavar="LEVEL",
        help="also read the hardware counters: basic (default) or full",
    )
    group.add_argument(
        "--metric", action="append", metavar="NAME", help="a metric of ncu, in addition to basic; may be repeated"
    )
    group.add_argument("--sanitize", action="store_true", default=None, help="also run it under compute-sanitizer")
    group.add_argument(
        "--draw-on", choices=("device", "host"), help="where get_inputs() and constructors make their tensors (device)"
    )
    group.add_argument(
        "--determinism", action="store_true", default=None, help="also check that equal inputs give equal bits"
    )
    group.add_argument("--cases", type=Path, metavar="FILE", help="a JSON list of the cases to judge the kernel for")
    group.add_argument(
        "--gradients", action="store_true", default=None, help="compare: also judge and time the backward"
    )
    group.add_argument("--replay-seed", metavar="HEX", help="the inputs of an earlier job")


def _add_reference_options(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("the reference")
    group.add_argument("--reference-type", type=str.lower, choices=[str(kind) for kind in KernelType])
    group.add_argument("--reference-io", type=Path, metavar="FILE")
    group.add_argument("--reference-entry", metavar="NAME")
