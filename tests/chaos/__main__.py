"""`python -m tests.chaos`: a long campaign of jobs and faults, a minute without Redis among them; prints the books."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from stack.terminal import Terminal
from tests.chaos.campaign import Campaign
from tests.chaos.service import service


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2000, help="at least so many; more while faults are left")
    parser.add_argument("--faults", type=int, default=100, help="of every kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--gpu", help="a card's UUID; without it, the CPU")
    given = parser.parse_args()
    names = {chr(ord("a") + number): 1 for number in range(given.workers)}
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    terminal = Terminal(soft_wrap=True)
    terminal.print(f"logs: {folder}")
    with service(folder, gpu=given.gpu, **names) as (made, ledger):
        campaign = Campaign(made, ledger, jobs=given.jobs, faults=given.faults, seed=given.seed)
        books = campaign.run(terminal.print)
    terminal.print(str(books))
    if not books.trouble:
        shutil.rmtree(folder)
    return 1 if books.trouble else 0


if __name__ == "__main__":
    sys.exit(main())
