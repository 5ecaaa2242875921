"""`python -m benchmarks [--out FILE]`: starts a service of its own, measures it, stops it, shows a table.

Each part prints what it does and is bounded in time: on two cores all parts take about four minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import httpx
from environs import EnvError
from rich.table import Table

from benchmarks import jobs, overhead
from benchmarks.baseline import baseline
from benchmarks.enqueue import RATE, SUBMISSIONS, WAITING
from benchmarks.latency import Latency
from benchmarks.overhead import BenchmarkError, Throughput
from domain.paths import ROOT
from domain.settings import settings
from stack import demo_report
from stack.devices import DeviceError
from stack.local_stack import StartError
from stack.redis_server import NoRedisServer, free_port
from stack.serve import described
from stack.shutdown import Stop, stop_on_signals
from stack.terminal import Terminal


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--out", type=Path, help="file of the figures as JSON (default: benchmarks.json in LOG_DIR)")
    out_file: Path | None = parser.parse_args().out
    console = Terminal(soft_wrap=True)
    if not console.is_terminal:
        console.width = demo_report.WIDTH
    stop_on_signals()
    try:
        figures = _measure(console)
    except Stop:
        console.print("Stopped before the end.")
        return 128 + signal.SIGINT
    except EnvError as error:
        print(error, file=sys.stderr)
        return 2
    except (StartError, DeviceError, NoRedisServer, BenchmarkError, httpx.HTTPError) as error:
        console.print(str(error), style="red")
        return 1
    out = out_file or ROOT / settings().log_dir / "benchmarks.json"
    out.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    console.print(f"All figures as JSON: {out}")
    return 0


def _measure(console: Terminal) -> dict[str, Any]:
    """Prints the table and returns its figures."""
    own = dataclasses.replace(settings().private(), port=free_port())
    began = time.monotonic()

    def report(what: str) -> None:
        console.print(f"{time.monotonic() - began:4.0f} s  {what} ...")

    report("starting Redis, the API and the workers")
    with overhead.service(own) as (stack, client):
        where: dict[str, Any] = {
            "device": described(stack.gpus),
            "host_cpus": os.cpu_count(),
            "jobs_at_once": overhead.jobs_at_once(stack),
        }
        console.print(f"{where['device']}; {where['host_cpus']} host CPUs, {where['jobs_at_once']} jobs at once")
        console.print(f"Each part is bounded: what has not been measured after {overhead.PART_S:.0f} s is left out.\n")
        gpu = bool(stack.gpus)
        kernels = "Triton and CUDA" if gpu else "PyTorch"
        quick = jobs.comparisons(overhead.STREAM, gpu=gpu, budget="quick")
        singles, streamed = quick[: overhead.COMPARED], quick[overhead.COMPARED :]
        report("the first jobs of each process")
        overhead.warm_up(stack, client)
        report(f"{overhead.ROUND_TRIPS} tiny evaluations, one at a time")
        round_trip = overhead.round_trip(stack, client)
        report("the same, of one that has been built")
        built = overhead.round_trip(stack, client, built=True)
        report(f"{overhead.SUBMISSIONS} submissions while the workers are busy")
        acceptance = overhead.acceptance(stack, client)
        report(f"{SUBMISSIONS} submissions at {RATE:.0f} a second beside {WAITING} waiting clients")
        enqueue = overhead.enqueue(stack)
        report(f"{overhead.MIXED} mixed jobs as one batch")
        throughput = overhead.throughput(stack, client, jobs.mixed(overhead.MIXED))
        report(f"{len(singles)} small comparisons with {kernels} at the quick budget, one at a time")
        quick_service = overhead.judged(stack, client, singles)
        report(f"{len(streamed)} of those as one batch")
        stream = overhead.throughput(stack, client, streamed)
    report(f"{len(singles)} of those without the service, an interpreter for each")
    quick_interpreters = baseline(singles, overhead.PART_S)
    lines = {
        "tiny /evaluate, POST to verdict, one at a time": round_trip.latency,
        "tiny /evaluate less the stage that times": round_trip.untimed,
        "tiny /evaluate less the windows of its time": round_trip.less_windows,
        "tiny /evaluate less its own time in them": round_trip.less_computing,
        **{f"of it {stage}": latency for stage, latency in round_trip.stages.items()},
        "the same kernel again, POST to verdict": built.latency,
        "again, less the stage that times": built.untimed,
        "again, less the windows of its time": built.less_windows,
        "again, less its own time in them": built.less_computing,
        "POST to 202, workers busy": acceptance,
        f"POST to 202, {enqueue.per_second:.0f} a second, {enqueue.waiting} clients waiting": enqueue.latency,
        f"small /compare with {kernels} at the quick budget, one at a time": quick_service.latency,
        "the same, a fresh interpreter for each (no service)": quick_interpreters,
        "small /compare less the stage that times": quick_service.untimed,
    }
    console.print(_table(lines, throughput))
    ratio = stream.per_second * quick_interpreters.mean / 1e3
    console.print(
        f"{stream.jobs} of those as one batch: {stream.per_second:.2f} a second, the device held for {stream.busy:.0%} "
        f"of the time, {ratio:.1f} times those interpreters "
        f"one after the other. Of the clients that wait, {enqueue.held} were held at the beginning; they and those "
        f"that submit took {enqueue.own_cpu:.0%} of a processor for themselves"
    )
    return {
        **where,
        "round_trip": dataclasses.asdict(round_trip),
        "round_trip_built": dataclasses.asdict(built),
        "acceptance_ms": dataclasses.asdict(acceptance),
        "enqueue": dataclasses.asdict(enqueue),
        "throughput": dataclasses.asdict(throughput),
        "quick": dataclasses.asdict(quick_service),
        "quick_stream": dataclasses.asdict(stream),
        "baseline_ms": dataclasses.asdict(quick_interpreters),
        "stream_over_baseline": ratio,
    }


def _table(lines: dict[str, Latency], throughput: Throughput) -> Table:
    table = Table("measured", "samples", "p50", "p95", "p99", "longest")
    for what, latency in lines.items():
        times = (latency.p50, latency.p95, latency.p99, latency.longest)
        table.add_row(what, str(latency.count), *(f"{time:.1f} ms" for time in times))
    outcomes = ", ".join(f"{count} {verdict}" for verdict, count in sorted(throughput.verdicts.items()))
    table.caption = (
        f"{throughput.jobs} small mixed jobs in {throughput.seconds:.1f} s: {throughput.per_second:.2f} a second, the"
        f" device held for {throughput.busy:.0%} of the time ({outcomes})"
    )
    return table


if __name__ == "__main__":
    sys.exit(main())
