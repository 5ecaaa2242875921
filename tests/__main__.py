"""`python -m tests`: judges every corpus on the device that is there; caught, missed and false alarms in one table."""

from __future__ import annotations

import argparse
import time

from stack.terminal import Terminal
from tests.corpus_summary import table, wrong_ones
from tests.exploits.__main__ import judge as judge_submissions
from tests.mutants.__main__ import judge as judge_mutants
from tests.own_worker import own_worker


def main() -> int:
    """1 where anything was missed, accused falsely (known ones aside) or not begun."""
    parser = argparse.ArgumentParser(prog="python -m tests", description=__doc__)
    parser.add_argument("--budget", type=float, default=3600, help="seconds after which no further one is begun")
    until = time.monotonic() + parser.parse_args().budget
    console = Terminal(columns=200)
    with own_worker() as worker:
        _, tallies, device = judge_submissions(worker, console, [], [], until=until)
        tallies += judge_mutants(worker, console, [], [], until=until)
    console.print(table(tallies, device), wrong_ones(tallies))
    return int(not all(tally.clean for tally in tallies))


if __name__ == "__main__":
    raise SystemExit(main())
