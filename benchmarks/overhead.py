"""The measurements, each on a running stack through its HTTP side."""

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
from benchmarks.stages import by_stage, computing_seconds, device_seconds, seconds_by_stage, window_seconds
from domain.job import TERMINAL, Stage, State
from domain.settings import Settings
from stack import processes
from stack.running import Stack, running

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
"""A measurement ends with the sample that it has then: on two cores a job takes seconds, on a GPU all are taken."""


Answer = TypeVar("Answer")


class BenchmarkError(RuntimeError):
    """What was measured is not what was meant to be measured."""


@dataclass(frozen=True)
class Throughput:
    """Jobs from the first one's acceptance to the last one's end, by the service's own clock; how each came out.

    Of the `sent` ones those that were not done in time were cancelled and do not count. `busy` is the share of that
    time in which a device was held by a job, of all devices.
    """

    sent: int
    jobs: int
    seconds: float
    per_second: float
    busy: float
    verdicts: dict[str, int]


@contextmanager
def service(own: Settings) -> Iterator[tuple[Stack, httpx.Client]]:
    """A running service of those settings and a client of it, until the block ends."""
    with running(own) as stack, httpx.Client(base_url=stack.url, timeout=REQUEST_S, trust_env=False) as client:
        yield stack, client


def jobs_at_once(stack: Stack) -> int:
    """Of all its workers."""
    return processes.jobs_at_once(stack.settings, stack.gpus) * max(len(stack.gpus), 1)


def warm_up(stack: Stack, client: httpx.Client) -> None:
    """Each process has its first job, which takes seconds on a GPU: nobody has two while one has none."""
    first = [submitted(client, jobs.tiny()) for _ in range(2 * jobs_at_once(stack))]
    stack.wait_until(lambda: all(job_of(client, job_id)["state"] in TERMINAL for job_id in first), "the first jobs")


@dataclass(frozen=True)
class RoundTrips:
    """POST to verdict as the client sees it, the same less the stage that times, less the windows of its time, less the
    kernel's own time in them alone, and each stage by itself."""

    latency: Latency
    untimed: Latency
    less_windows: Latency
    less_computing: Latency
    stages: dict[Stage, Latency]


def round_trip(stack: Stack, client: httpx.Client, *, built: bool = False) -> RoundTrips:
    """POST of a tiny kernel to its verdict, one after the other, service idle and warm: on a GPU a vector addition.

    One that was `built` before, or each anew.
    """
    kind = jobs.vector_add if stack.gpus else jobs.tiny
    bodies = [kind()] * ROUND_TRIPS if built else [kind() for _ in range(ROUND_TRIPS)]
    if built:
        _judged(stack, client, "/evaluate", bodies[0])
    return _one_after_the_other(stack, client, "/evaluate", bodies)


def acceptance(stack: Stack, client: httpx.Client) -> Latency:
    """POST to its 202 while the workers are busy with a queue that is longer than they are many."""
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
    """POST to 202 at a fixed rate beside hundreds of clients that wait, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.enqueue", stack.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        stack.wait_until(lambda: process.poll() is not None, "the benchmark's clients")
        out, _ = process.communicate()
    if process.returncode != 0:
        raise BenchmarkError("the clients of the benchmark failed; what they said is above")
    return of_wire(json.loads(out))


def judged(stack: Stack, client: httpx.Client, bodies: list[dict[str, Any]]) -> RoundTrips:
    """The same comparisons that `benchmarks/baseline.py` makes, one after the other."""
    return _one_after_the_other(stack, client, "/compare", bodies)


def throughput(stack: Stack, client: httpx.Client, sent: list[dict[str, Any]], within_s: float = PART_S) -> Throughput:
    """Jobs accepted as one batch."""
    answer = client.post("/batch", json={"jobs": sent}).raise_for_status().json()
    if answer["accepted"] != len(sent):
        raise BenchmarkError(f"the service refused jobs: {answer['jobs']}")
    query = {"batch_id": answer["batch_id"], "limit": len(sent)}
    over, found = time.monotonic() + within_s, _listed(client, query)
    while not all(job["state"] in TERMINAL for job in found):
        if time.monotonic() > over and any(job["state"] in TERMINAL for job in found):
            client.post("/jobs/cancel", json={"batch_id": answer["batch_id"]}).raise_for_status()
            over = float("inf")
        stack.tick(BEAT_S)
        found = _listed(client, query)
    ended = [job_of(client, entry["job_id"]) for entry in found if entry["state"] != State.CANCELLED]
    seconds = max(job["timeline"][-1]["at"] for job in ended) - min(job["submitted_at"] for job in ended)
    verdicts = Counter((job["result"] or {}).get("verdict", job["state"]) for job in ended)
    busy = sum(map(device_seconds, ended)) / (seconds * max(len(stack.gpus), 1))
    return Throughput(len(sent), len(ended), seconds, len(ended) / seconds, busy, dict(verdicts))


def _one_after_the_other(stack: Stack, client: httpx.Client, path: str, bodies: list[dict[str, Any]]) -> RoundTrips:
    """As many as fit into `PART_S`, and one at least."""
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
    """The job's id, and seconds from the POST to its verdict."""

    def timed() -> tuple[httpx.Response, float]:
        began = time.perf_counter()
        answer = client.post(path, params={"wait": WAIT_S}, json=body)
        return answer, time.perf_counter() - began

    answer, seconds = _meanwhile_ticking(stack, timed)
    if answer.status_code != httpx.codes.OK or answer.json()["verdict"] != "passed":
        raise BenchmarkError(f"a kernel that should pass did not: {answer.text}")
    return str(answer.json()["job_id"]), seconds


def _meanwhile_ticking(stack: Stack, call: Callable[[], Answer]) -> Answer:
    """What it returns. Processes whose lines nobody takes stand still as soon as their pipe is full."""
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(call)
        while not future.done():
            stack.tick(TICK_S)
        return future.result()


def _listed(client: httpx.Client, query: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/jobs", params=query).raise_for_status().json()["jobs"]
    return found


def submitted(client: httpx.Client, body: jobs.Body) -> str:
    """The id of the job that an /evaluate has become."""
    answer = client.post("/evaluate", json=body)
    if answer.status_code != httpx.codes.ACCEPTED:
        raise BenchmarkError(f"the service did not take a job: {answer.text}")
    return str(answer.json()["job_id"])


def job_of(client: httpx.Client, job_id: str) -> dict[str, Any]:
    """As it is now."""
    found: dict[str, Any] = client.get(f"/job/{job_id}").raise_for_status().json()
    return found
