"""`python -m benchmarks.endurance [--jobs N]`: many no-op jobs through a whole service, and its memory.

Forty-nine of fifty jobs compare a kernel that does nothing with a reference, and fail before timing. The fiftieth is
timed. Records expire after a minute, so that their number becomes steady as it would after a day.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections import defaultdict
from contextlib import suppress
from typing import Any

import httpx
import psutil
from rich.table import Table

from benchmarks.overhead import BenchmarkError
from domain.settings import settings
from stack.local_stack import Stack, running
from stack.redis_server import free_port
from stack.shutdown import Stop, stop_on_signals
from stack.terminal import Terminal

JOB_TTL_S = 60
PIECE = 50
AHEAD = 100
TIMED_EVERY = 50
SAMPLES = 40
WARM_SHARE = 0.25
"""Fraction of the samples before all libraries are loaded and all pools are full."""

FLAT_MIB = 64.0
"""Maximum growth that counts as none, in MiB, extrapolated to 50,000 jobs."""

FULL_JOBS = 50_000
MIB = 1 << 20

_INPUTS = "\ndef get_inputs():\n    return [torch.zeros(8)]\n"
REFERENCE = "class Model(nn.Module):\n    def forward(self, x):\n        return x + 1\n" + _INPUTS
NOTHING = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x\n"


Samples = dict[str, list[tuple[int, float]]]
"""For each process: pairs of finished jobs and resident MiB."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.endurance", description=__doc__)
    parser.add_argument("--jobs", type=int, default=FULL_JOBS)
    jobs = parser.parse_args().jobs
    stop_on_signals()
    own = dataclasses.replace(settings().private(), port=free_port(), gpu_device="cpu", job_ttl=JOB_TTL_S)
    samples: Samples = defaultdict(list)
    with running(own) as stack, httpx.Client(base_url=stack.url, timeout=60, trust_env=False) as client:
        began = time.monotonic()
        try:
            _run(stack, client, jobs, samples)
        except Stop:
            print("Stopped before the end; so far:")
        seconds = time.monotonic() - began
        stats = client.get("/stats").raise_for_status().json()
        jobs = int(stats["jobs_completed"])
    Terminal(width=120).print(_table(samples))
    print(f"{jobs} jobs in {seconds:.0f} s, {jobs / seconds:.1f} a second: {stats['verdicts']}")
    growths = {name: _growth(series) for name, series in samples.items()}
    grown = {name: round(mib, 1) for name, mib in growths.items() if mib > FLAT_MIB}
    print(f"not flat, in MiB per {FULL_JOBS} jobs: {grown}" if grown else "flat")
    return 1 if grown or stats["jobs_failed"] else 0


def _run(stack: Stack, client: httpx.Client, jobs: int, samples: Samples) -> None:
    submitted = done = 0
    every = max(1, jobs // SAMPLES)
    while done < jobs:
        while submitted < jobs and submitted - done < AHEAD:
            piece = [_job(number) for number in range(submitted, min(submitted + PIECE, jobs))]
            answer = client.post("/batch", json={"jobs": piece}).raise_for_status().json()
            if answer["accepted"] != len(piece):
                raise BenchmarkError(f"the service refused jobs: {answer['jobs']}")
            submitted += len(piece)
        stack.tick(0.2)
        if stack.supervisor.deaths:
            raise BenchmarkError(f"processes ended: {stack.supervisor.deaths}")
        stats = client.get("/stats").raise_for_status().json()
        done = int(stats["jobs_completed"] + stats["jobs_failed"])
        if done >= every * (1 + max(map(len, samples.values()), default=0)):
            for name, mib in _resident():
                samples[name].append((done, mib))


def _job(number: int) -> dict[str, Any]:
    reference = {"source_code": REFERENCE, "kernel_type": "torch"}
    if number % TIMED_EVERY == 0:
        return {"operation": "evaluate", "kernel": reference, "num_trials": 1}
    candidate = {"source_code": NOTHING, "kernel_type": "torch"}
    return {"operation": "compare", "ref_kernel": reference, "custom_kernel": candidate, "num_trials": 1}


def _resident() -> list[tuple[str, float]]:
    """Resident memory of every process that outlives a job, by its kind and number."""
    by_kind: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if (kind := _kind(process)) is not None:
                by_kind[kind].append((process.pid, process.memory_info().rss / MIB))
    return [
        (f"{kind} {number}", mib)
        for kind, processes in sorted(by_kind.items())
        for number, (_, mib) in enumerate(sorted(processes))
    ]


def _kind(process: psutil.Process) -> str | None:
    line, parent = " ".join(process.cmdline()), process.parent()
    above = " ".join(parent.cmdline()) if parent is not None else ""
    if "sandbox.runner.zygote" in line:
        return None if "sandbox.runner.zygote" in above else "zygote"
    for word, one, below in (("gunicorn", "api main", "api process"), ("celery", "worker main", "pool child")):
        if word in line:
            return below if word in above else one
    return "redis" if "valkey" in line or "redis" in line else None


def _growth(samples: list[tuple[int, float]]) -> float:
    """Slope of a line through the samples after the warm-up, in MiB per FULL_JOBS jobs."""
    late = samples[int(len(samples) * WARM_SHARE) :]
    if len(late) < 2:
        return 0.0
    mean_x, mean_y = (sum(part) / len(late) for part in zip(*late, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in late)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in late) / spread if spread else 0.0
    return slope * FULL_JOBS


def _table(samples: Samples) -> Table:
    table = Table("process", "first MiB", "after warm-up", "last", "highest", f"slope, MiB per {FULL_JOBS} jobs")
    for name, series in sorted(samples.items()):
        mib = [each for _, each in series]
        warm = mib[min(int(len(mib) * WARM_SHARE), len(mib) - 1)]
        figures = (mib[0], warm, mib[-1], max(mib), _growth(series))
        table.add_row(name, *(f"{figure:.1f}" for figure in figures))
    return table


if __name__ == "__main__":
    sys.exit(main())
