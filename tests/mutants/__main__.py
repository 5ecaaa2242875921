"""`python -m tests.mutants [NAME...]`: originals that passed, mutants that were caught, and the missed ones by name."""

from __future__ import annotations

import argparse
import time

from domain.result import Status
from stack.terminal import Terminal
from tasks.runtime.worker_context import WorkerContext
from tests.corpus_summary import Tally, table, wrong_ones
from tests.mutants.corpus import Mutant, Original, judged, originals
from tests.own_worker import own_worker


def main() -> int:
    """Prints a line for each kernel as it is done, then the table; 1 when anything was wrong, missed or not begun."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these kernels; all when none is given")
    parser.add_argument(
        "--skip", action="append", default=[], metavar="NAME", help="not this kernel; may be given again"
    )
    parser.add_argument("--budget", type=float, default=420, help="seconds after which no further one is begun")
    options = parser.parse_args()
    console = Terminal(columns=200)
    with own_worker() as worker:
        until = time.monotonic() + options.budget
        tallies = judge(worker, console, options.names, options.skip, until=until)
        device = "gpu" if worker.target.is_cuda else "cpu"
    console.print(table(tallies, device), wrong_ones(tallies))
    return int(not all(tally.clean for tally in tallies))


def judge(
    worker: WorkerContext, console: Terminal, names: list[str], skipped: list[str], *, until: float
) -> list[Tally]:
    """Judges the chosen kernels, a line for each as it is done: what originals and mutants came to."""
    rights, bugs = Tally("originals", honest=True), Tally("mutants", honest=False)
    for name, original in _chosen(names, skipped).items():
        if original.needs_gpu and not worker.target.is_cuda:
            console.print(f"{'':3}{name}: needs a GPU")
            continue
        if time.monotonic() > until:
            rights.not_begun += 1
            bugs.not_begun += len(original.mutants)
            continue
        own, found = verdicts(worker, original)
        rights.note(name, right=own is Status.PASSED)
        for kind, is_caught in found.items():
            bugs.note(f"{name}/{kind}", right=is_caught, known=original.mutants[kind].missed is not None)
        missed = [kind for kind, is_caught in found.items() if not is_caught]
        ok = "NO" if missed or own is not Status.PASSED else "ok"
        # At once: a run that is cut short has still said what it found.
        caught = f"{len(found) - len(missed)} of {len(found)} mutants caught"
        console.print(f"{ok:3}{name}: {own.value}; {caught}; missed: {', '.join(missed) or 'none'}")
    return [rights, bugs]


def verdicts(worker: WorkerContext, original: Original) -> tuple[Status, dict[str, bool]]:
    """The original's verdict, and whether each mutant that this device can show was caught."""
    shown = {name: mutant for name, mutant in original.mutants.items() if _shows(worker, mutant)}
    return (
        judged(worker, original.request()).status,
        {name: mutant.is_caught(judged(worker, original.request(mutant))) for name, mutant in shown.items()},
    )


def _chosen(names: list[str], skipped: list[str]) -> dict[str, Original]:
    return {
        name: original for name, original in originals().items() if name not in skipped and (not names or name in names)
    }


def _shows(worker: WorkerContext, mutant: Mutant) -> bool:
    return worker.target.is_cuda or not mutant.gpu_only


if __name__ == "__main__":
    raise SystemExit(main())
