"""`python -m benchmarks.standbys`: times to create and to end several runners' CUDA contexts at once.

Contexts have one hardware queue, as pooled runners have, or the driver's eight, as jobs with several streams need.
Windows of other jobs wait for both.
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
    worker = WorkerContext()
    try:
        if not worker.device.is_cuda:
            parser.exit(1, "needs an NVIDIA GPU: there are no contexts without one\n")
        rows = Rows(Terminal(width=120), "medians", "queues", "at once", "made ms", "ended ms", "µs a launch")
        worker.start_zygote()
        for one_queue in (True, False):
            for count in AT_ONCE:
                samples = [_measure(worker, count, one_queue) for _ in range(options.times)]
                runners, ended, launch = (statistics.median(times) for times in zip(*samples, strict=True))
                rows.add("1" if one_queue else "8", str(count), f"{runners:.0f}", f"{ended:.0f}", f"{launch:.3f}")
        rows.end()
    finally:
        worker.close()
    return 0


def _measure(worker: WorkerContext, count: int, one_queue: bool) -> tuple[float, float, float]:
    """Milliseconds to create and to end the runners, and their median launch time in µs, if known."""
    began = time.perf_counter()
    runners = worker.runner_pool.make(count, lambda: False, one_queue=one_queue)
    ready = time.perf_counter()
    end(runners)
    launches_us = [1e3 * one.launch_ms for one in runners if one.launch_ms is not None]
    launch = statistics.median(launches_us) if launches_us else float("nan")
    return 1e3 * (ready - began), 1e3 * (time.perf_counter() - ready), launch


if __name__ == "__main__":
    sys.exit(main())
