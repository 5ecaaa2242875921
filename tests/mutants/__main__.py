"""`python -m tests.mutants [NAME...]`: originals that passed, mutants that were caught, and the missed ones by name."""

from __future__ import annotations

import argparse
import time

from rich.console import Console
from rich.table import Column, Table

from domain.result import Status
from tasks.workbench import Workbench
from tests.bench import own_workbench
from tests.mutants.corpus import CAUGHT, Mutant, Original, judged, originals


def main() -> int:
    """Prints a line for each kernel as it is done, then the table; 1 when anything was wrong, missed or not begun."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these kernels; all when none is given")
    parser.add_argument(
        "--skip", action="append", default=[], metavar="NAME", help="not this kernel; may be given again"
    )
    parser.add_argument("--budget", type=float, default=420, help="seconds after which no further one is begun")
    options = parser.parse_args()
    started = time.monotonic()
    table = Table(Column("kernel", no_wrap=True), "original", "mutants", "caught", "missed", "s")
    judged_kernels = right = caught = total = 0
    needing_a_gpu, left = [], []
    with own_workbench() as bench:
        for name, original in _chosen(options.names, options.skip).items():
            began = time.monotonic()
            if original.needs_gpu and not bench.target.is_cuda:
                needing_a_gpu.append(name)
                continue
            if began - started > options.budget:
                left.append(name)
                continue
            own, found = verdicts(bench, original)
            missed = [mutant for mutant, status in found.items() if status not in CAUGHT]
            judged_kernels += 1
            right += own is Status.PASSED
            caught += len(found) - len(missed)
            total += len(found)
            counts = (str(len(found)), str(len(found) - len(missed)), ", ".join(missed) or "–")
            table.add_row(name, own.value, *counts, f"{time.monotonic() - began:.1f}")
            # At once: a run that is cut short has still said what it found.
            print(f"{name}: {own.value}; mutants caught: {counts[1]} of {counts[0]}; missed: {counts[2]}", flush=True)
    Console().print(table)
    print(f"originals passed: {right} of {judged_kernels}; mutants caught: {caught} of {total}")
    if needing_a_gpu:
        print(f"not judged, they need a GPU: {', '.join(needing_a_gpu)}")
    if left:
        print(f"not begun, the budget was spent: {', '.join(left)}")
    return int(right < judged_kernels or caught < total or bool(left))


def verdicts(bench: Workbench, original: Original) -> tuple[Status, dict[str, Status]]:
    """The original's verdict, and that of each mutant that this device can show."""
    shown = {name: mutant for name, mutant in original.mutants.items() if _shows(bench, mutant)}
    return (
        judged(bench, original.request()).status,
        {name: judged(bench, original.request(mutant)).status for name, mutant in shown.items()},
    )


def _chosen(names: list[str], skipped: list[str]) -> dict[str, Original]:
    return {
        name: original for name, original in originals().items() if name not in skipped and (not names or name in names)
    }


def _shows(bench: Workbench, mutant: Mutant) -> bool:
    return bench.target.is_cuda or not mutant.gpu_only


if __name__ == "__main__":
    raise SystemExit(main())
