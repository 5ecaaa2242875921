"""`python -m benchmarks.standbys`: how long runners' contexts take to be made and to end, so many at once.

Of one hardware queue, as those that wait for jobs, and of the driver's eight, as for jobs of several streams. Windows
of other jobs wait for both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from benchmarks.timing import Rows
from stack.terminal import Terminal
from tasks.runtime.runner_pool import end
from tasks.runtime.worker_context import WorkerContext

AT_ONCE = (1, 2, 4)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.standbys", description=__doc__)
    parser.add_argument("--times", type=int, default=5, help="of each, one after the other")
    options = parser.parse_args()
    bench = WorkerContext()
    try:
        if not bench.device.is_cuda:
            parser.exit(1, "needs an NVIDIA GPU: there are no contexts without one\n")
        rows = Rows(Terminal(width=120), "medians", "queues", "at once", "made ms", "ended ms", "µs a launch")
        bench.start_zygote()
        for one_queue in (True, False):
            for count in AT_ONCE:
                taken = [_taken(bench, count, one_queue) for _ in range(options.times)]
                made, ended, launch = (statistics.median(times) for times in zip(*taken, strict=True))
                rows.add("1" if one_queue else "8", str(count), f"{made:.0f}", f"{ended:.0f}", f"{launch:.3f}")
        rows.end()
    finally:
        bench.close()
    return 0


def _taken(bench: WorkerContext, count: int, one_queue: bool) -> tuple[float, float, float]:
    """ms until they are made, and until they have ended; µs a launch, the median where it is known."""
    began = time.perf_counter()
    made = bench.runner_pool.make(count, lambda: False, one_queue=one_queue)
    there = time.perf_counter()
    end(made)
    known = [1e3 * one.launch_ms for one in made if one.launch_ms is not None]
    launch = statistics.median(known) if known else float("nan")
    return 1e3 * (there - began), 1e3 * (time.perf_counter() - there), launch


if __name__ == "__main__":
    sys.exit(main())
