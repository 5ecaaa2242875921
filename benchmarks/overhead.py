"""The measurements of a running stack, through its HTTP API."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from benchmarks import jobs
from benchmarks.enqueue import Enqueue, of_wire
from benchmarks.latency import Latency
from benchmarks.stages import (
    DeviceBudget,
    by_stage,
    computing_seconds,
    device_budgets,
    device_seconds,
    seconds_by_stage,
    window_seconds,
)
from domain.job import TERMINAL, Stage, State
from domain.settings import Settings
from stack import processes
from stack.local_stack import Stack, running

ROUND_TRIPS = 20
BACKLOG = 8
SUBMISSIONS = 100
MIXED = 40
STREAM = 100
COMPARED = 10
REQUEST_S = 90.0
WAIT_S = 60
BEAT_S = 0.1
TICK_S = 0.02

PART_S = 30.0
"""Maximum time of a measurement, in s; it then ends after its current sample. A GPU takes all samples in time."""


Answer = TypeVar("Answer")


class BenchmarkError(RuntimeError):
    """The benchmark did not measure what it was meant to."""


@dataclass(frozen=True)
class Throughput:
    """Jobs from the first acceptance to the last end, by the service's own clock, and their verdicts.

    Jobs of the `sent` ones that were late were cancelled and do not count. `busy` is the share of the time in which
    jobs held a device, over all devices. `budgets`: what they held it for, by kernel type.
    """

    sent: int
    jobs: int
    seconds: float
    per_second: float
    busy: float
    verdicts: dict[str, int]
    budgets: dict[str, DeviceBudget]


@contextmanager
def service(own: Settings) -> Iterator[tuple[Stack, httpx.Client]]:
    """A running service with those settings, and a client of it, until the block ends."""
    with running(own) as stack, httpx.Client(base_url=stack.url, timeout=REQUEST_S, trust_env=False) as client:
        yield stack, client


def jobs_at_once(stack: Stack) -> int:
    """Maximum jobs at once of all workers."""
    return processes.jobs_at_once(stack.settings, stack.gpus) * max(len(stack.gpus), 1)


def warm_up(stack: Stack, client: httpx.Client) -> None:
    """Gives each process its first job, which takes seconds on a GPU."""
    first = [submitted(client, jobs.tiny()) for _ in range(2 * jobs_at_once(stack))]
    stack.wait_until(lambda: all(job_of(client, job_id)["state"] in TERMINAL for job_id in first), "the first jobs")


@dataclass(frozen=True)
class RoundTrips:
    """Latencies of jobs, each less a part of it.

    - `latency`: from the POST to the verdict, as the client sees it.
    - `untimed`: less the stage that times.
    - `less_windows`: less the timing windows.
    - `less_computing`: less the kernel's own time in them.
    - `stages`: each stage by itself.
    """

    latency: Latency
    untimed: Latency
    less_windows: Latency
    less_computing: Latency
    stages: dict[Stage, Latency]


def round_trip(stack: Stack, client: httpx.Client, *, built: bool = False) -> RoundTrips:
    """POST of a tiny kernel to its verdict, one after the other on an idle, warm service; on a GPU a vector addition.

    With `built`, the kernel was built before; otherwise each is new.
    """
    kind = jobs.vector_add if stack.gpus else jobs.tiny
    bodies = [kind()] * ROUND_TRIPS if built else [kind() for _ in range(ROUND_TRIPS)]
    if built:
        _judged(stack, client, "/evaluate", bodies[0])
    return _one_after_the_other(stack, client, "/evaluate", bodies)


def acceptance(stack: Stack, client: httpx.Client) -> Latency:
    """POST to its 202 while all workers are busy and jobs wait."""
    accepted = [submitted(client, jobs.tiny()) for _ in range(BACKLOG)]
    stack.wait_until(lambda: job_of(client, accepted[0])["state"] != State.QUEUED, "a worker")
    samples = []
    for _ in range(SUBMISSIONS):
        began = time.perf_counter()
        accepted.append(submitted(client, jobs.tiny()))
        samples.append(time.perf_counter() - began)
        stack.tick(0)
    if job_of(client, accepted[-1])["state"] != State.QUEUED:
        raise BenchmarkError("the workers caught up with the submissions, so they were not busy")
    for job_id in reversed(accepted):
        client.delete(f"/job/{job_id}").raise_for_status()
    stack.wait_until(
        lambda: all(job_of(client, job_id)["state"] in TERMINAL for job_id in accepted), "the cancellation"
    )
    return Latency.of(samples)


def enqueue(stack: Stack) -> Enqueue:
    """POST to its 202 at a fixed rate beside hundreds of waiting clients, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.enqueue", stack.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        stack.wait_until(lambda: process.poll() is not None, "the benchmark's clients")
        out, _ = process.communicate()
    if process.returncode != 0:
        raise BenchmarkError("the clients of the benchmark failed; what they said is above")
    return of_wire(json.loads(out))


def judged(stack: Stack, client: httpx.Client, bodies: list[dict[str, Any]]) -> RoundTrips:
    """The comparisons of `benchmarks/baseline.py`, one after the other."""
    return _one_after_the_other(stack, client, "/compare", bodies)


def throughput(stack: Stack, client: httpx.Client, sent: list[dict[str, Any]], within_s: float = PART_S) -> Throughput:
    """Submits the jobs as one batch and waits for them."""
    answer = client.post("/batch", json={"jobs": sent}).raise_for_status().json()
    if answer["accepted"] != len(sent):
        raise BenchmarkError(f"the service refused jobs: {answer['jobs']}")
    query = {"batch_id": answer["batch_id"], "limit": len(sent)}
    over, entries = time.monotonic() + within_s, _listed(client, query)
    while not all(job["state"] in TERMINAL for job in entries):
        if time.monotonic() > over and any(job["state"] in TERMINAL for job in entries):
            client.post("/jobs/cancel", json={"batch_id": answer["batch_id"]}).raise_for_status()
            over = float("inf")
        stack.tick(BEAT_S)
        entries = _listed(client, query)
    ended = [job_of(client, entry["job_id"]) for entry in entries if entry["state"] != State.CANCELLED]
    seconds = max(job["timeline"][-1]["at"] for job in ended) - min(job["submitted_at"] for job in ended)
    verdicts = Counter((job["result"] or {}).get("verdict", job["state"]) for job in ended)
    busy = sum(map(device_seconds, ended)) / (seconds * max(len(stack.gpus), 1))
    budgets = device_budgets(ended)
    return Throughput(len(sent), len(ended), seconds, len(ended) / seconds, busy, dict(verdicts), budgets)


def _one_after_the_other(stack: Stack, client: httpx.Client, path: str, bodies: list[dict[str, Any]]) -> RoundTrips:
    """As many as fit into `PART_S`, and at least one."""
    over, samples = time.monotonic() + PART_S, [_judged(stack, client, path, bodies[0])]
    for body in bodies[1:]:
        if time.monotonic() > over:
            break
        samples.append(_judged(stack, client, path, body))
    ended = [job_of(client, job_id) for job_id, _ in samples]
    pairs = [(seconds, job) for (_, seconds), job in zip(samples, ended, strict=True)]
    return RoundTrips(
        Latency.of([seconds for _, seconds in samples]),
        Latency.of([seconds - seconds_by_stage(job).get(Stage.TIME, 0.0) for seconds, job in pairs]),
        Latency.of([seconds - window_seconds(job) for seconds, job in pairs]),
        Latency.of([seconds - computing_seconds(job) for seconds, job in pairs]),
        by_stage(ended),
    )


def _judged(stack: Stack, client: httpx.Client, path: str, body: dict[str, Any]) -> tuple[str, float]:
    """The job's id, and the seconds from its POST to its verdict."""

    def timed() -> tuple[httpx.Response, float]:
        began = time.perf_counter()
        answer = client.post(path, params={"wait": WAIT_S}, json=body)
        return answer, time.perf_counter() - began

    answer, seconds = _meanwhile_ticking(stack, timed)
    if answer.status_code != httpx.codes.OK or answer.json()["verdict"] != "passed":
        raise BenchmarkError(f"a kernel that should pass did not: {answer.text}")
    return str(answer.json()["job_id"]), seconds


def _meanwhile_ticking(stack: Stack, call: Callable[[], Answer]) -> Answer:
    """Makes the call while `tick` reads the processes' lines: a full pipe would block them."""
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(call)
        while not future.done():
            stack.tick(TICK_S)
        return future.result()


def _listed(client: httpx.Client, query: dict[str, Any]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = client.get("/jobs", params=query).raise_for_status().json()["jobs"]
    return entries


def submitted(client: httpx.Client, body: jobs.Body) -> str:
    """Submits an /evaluate and returns the job's id."""
    answer = client.post("/evaluate", json=body)
    if answer.status_code != httpx.codes.ACCEPTED:
        raise BenchmarkError(f"the service did not take a job: {answer.text}")
    return str(answer.json()["job_id"])


def job_of(client: httpx.Client, job_id: str) -> dict[str, Any]:
    """The current record of the job."""
    job: dict[str, Any] = client.get(f"/job/{job_id}").raise_for_status().json()
    return job
