"""`python -m tests.fuzz`: many requests that nobody would write, at a service of its own; prints what was answered."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from stack.terminal import Terminal
from tests.chaos.service import service
from tests.fuzz.campaign import Fuzz


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--judged", type=int, default=200, help="accepted jobs that are waited for")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, service(Path(folder), app="tasks.app", a=2) as found:
        made, _ = found
        tally = Fuzz(made, number=given.requests, seed=given.seed, judged=given.judged).run()
        made.stop()
        made.assert_nothing_left()
    Terminal(soft_wrap=True).print(str(tally))
    return 1 if tally.log_lines else 0


if __name__ == "__main__":
    sys.exit(main())
