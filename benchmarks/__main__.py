"""`python -m benchmarks [--out FILE]`: starts a service of its own, measures it, stops it, shows a table."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import httpx
from environs import EnvError
from rich.console import Console
from rich.table import Table

from benchmarks import jobs, overhead
from benchmarks.baseline import baseline
from benchmarks.latency import Latency
from benchmarks.overhead import BenchmarkError, Throughput
from domain.settings import settings
from stack import verdicts
from stack.devices import DeviceError
from stack.processes import CPU_WORKERS, GPU_WORKERS
from stack.redis_server import NoRedisServer, free_port
from stack.running import StartError, running
from stack.serve import described
from stack.stopping import Stop, stop_on_signals

REQUEST_S = 90.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--out", type=Path, help="also write the figures to this file, as JSON")
    out = parser.parse_args().out
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = verdicts.WIDTH
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
        console.print(str(error), style="red", markup=False)
        return 1
    if out is not None:
        out.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def _measure(console: Console) -> dict[str, Any]:
    """Prints the table and gives its figures."""
    own = dataclasses.replace(settings().private(), port=free_port())
    console.print("Starting Redis, the API and the workers ...")
    with running(own) as stack, httpx.Client(base_url=stack.url, timeout=REQUEST_S, trust_env=False) as client:
        where: dict[str, Any] = {
            "device": described(stack.gpus),
            "host_cpus": os.cpu_count(),
            "jobs_at_once": (own.max_workers or (GPU_WORKERS if stack.gpus else CPU_WORKERS)) * (len(stack.gpus) or 1),
        }
        console.print(f"{where['device']}; {where['host_cpus']} host CPUs, {where['jobs_at_once']} jobs at once\n")
        round_trip = overhead.round_trip(stack, client)
        acceptance = overhead.acceptance(stack, client)
        enqueue = overhead.enqueue(stack)
        throughput = overhead.throughput(stack, client, jobs.mixed(overhead.MIXED))
        quick = [jobs.right(budget="quick") for _ in range(overhead.STREAM)]
        ours = overhead.judged(stack, client, quick[: overhead.COMPARED])
        stream = overhead.throughput(stack, client, quick[overhead.COMPARED :])
    console.print("Now without the service, an interpreter for each job ...")
    theirs = baseline(quick[: overhead.COMPARED])
    lines = {
        "tiny /evaluate, POST to verdict, one at a time": round_trip,
        "POST to 202, workers busy": acceptance,
        f"POST to 202, {enqueue.per_second:.0f} a second, {enqueue.waiting} clients waiting": enqueue.latency,
        "small /compare at the quick budget, one at a time": ours,
        "the same, a fresh interpreter for each (no service)": theirs,
    }
    console.print(_table(lines, throughput))
    ratio = stream.per_second * theirs.mean / 1e3
    console.print(
        f"{stream.jobs} of those as one batch: {stream.per_second:.2f} a second, {ratio:.1f} times those interpreters "
        f"one after the other. Of the clients that wait, {enqueue.held} were held at the beginning, for so many places"
    )
    return {
        **where,
        "round_trip_ms": dataclasses.asdict(round_trip),
        "acceptance_ms": dataclasses.asdict(acceptance),
        "enqueue": dataclasses.asdict(enqueue),
        "throughput": dataclasses.asdict(throughput),
        "quick_ms": dataclasses.asdict(ours),
        "quick_stream": dataclasses.asdict(stream),
        "baseline_ms": dataclasses.asdict(theirs),
        "stream_over_baseline": ratio,
    }


def _table(lines: dict[str, Latency], throughput: Throughput) -> Table:
    table = Table("measured", "samples", "p50", "p95", "p99", "longest")
    for what, latency in lines.items():
        times = (latency.p50, latency.p95, latency.p99, latency.longest)
        table.add_row(what, str(latency.count), *(f"{time:.1f} ms" for time in times))
    outcomes = ", ".join(f"{count} {verdict}" for verdict, count in sorted(throughput.verdicts.items()))
    table.caption = (
        f"{throughput.jobs} small mixed jobs in {throughput.seconds:.1f} s: {throughput.per_second:.2f} a second"
        f" ({outcomes})"
    )
    return table


if __name__ == "__main__":
    sys.exit(main())
