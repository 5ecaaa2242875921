"""Measures the time from a POST to its 202 at a fixed rate, while hundreds of clients wait for jobs."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any

from benchmarks import jobs
from benchmarks.connection import Answer, Connection
from benchmarks.latency import Latency

RATE = 200.0
SUBMISSIONS = 1000
WAITING = 500
WAIT_S = 30
SETTLE_S = 8.0
CANCELLED_AT_ONCE = 500
CONNECTIONS = 64


@dataclass(frozen=True)
class Enqueue:
    """Latencies from the time at which each POST was due, so that a slow response delays no later one.

    The service held `held` of the `waiting` clients when the first POST was sent. It had told the others to come back
    later, because it holds a limited number. `own_cpu` is the share of one processor that these clients used meanwhile.
    """

    latency: Latency
    per_second: float
    waiting: int
    held: int
    own_cpu: float


def main(url: str) -> None:
    """Runs in a process of its own; prints the figures as JSON."""
    print(json.dumps(asyncio.run(_measure(url))))


def of_wire(wire: dict[str, Any]) -> Enqueue:
    """Parses the output of `main`."""
    return Enqueue(**{**wire, "latency": Latency(**wire["latency"])})


async def _measure(url: str) -> dict[str, Any]:
    connections: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        connections.put_nowait(await Connection.to(url))
    accepted = [await _submit(connections) for _ in range(WAITING)]
    pending: set[int] = set()
    waiters = [asyncio.create_task(_wait(url, accepted[number], number, pending)) for number in range(WAITING)]
    await asyncio.sleep(SETTLE_S)
    held, began, before = len(pending), time.perf_counter(), time.process_time()
    posts = [asyncio.create_task(_post(connections, began + number / RATE)) for number in range(SUBMISSIONS)]
    answers = [await post for post in posts]
    spent = max(ended for _, _, ended in answers) - began
    own_cpu = (time.process_time() - before) / spent
    for waiter in waiters:
        waiter.cancel()
    await asyncio.gather(*waiters, return_exceptions=True)
    accepted += [job_id for job_id, _, _ in answers]
    for first in range(0, len(accepted), CANCELLED_AT_ONCE):
        await _post_json(connections, "/jobs/cancel", {"job_ids": accepted[first : first + CANCELLED_AT_ONCE]})
    latency = Latency.of([seconds for _, seconds, _ in answers])
    return asdict(Enqueue(latency, SUBMISSIONS / spent, WAITING, held, own_cpu))


async def _post(connections: asyncio.Queue[Connection], due: float) -> tuple[str, float, float]:
    await asyncio.sleep(max(0.0, due - time.perf_counter()))
    job_id = await _submit(connections)
    ended = time.perf_counter()
    return job_id, ended - due, ended


async def _submit(connections: asyncio.Queue[Connection]) -> str:
    answer = await _post_json(connections, "/evaluate", jobs.sleeping())
    if answer.status != HTTPStatus.ACCEPTED:
        raise RuntimeError(f"the service did not take a job: {answer.body}")
    return str(answer.body["job_id"])


async def _post_json(connections: asyncio.Queue[Connection], path: str, body: Any) -> Answer:
    connection = await connections.get()
    try:
        return await connection.ask("POST", path, body)
    finally:
        connections.put_nowait(connection)


async def _wait(url: str, job_id: str, number: int, pending: set[int]) -> None:
    """A client that waits for its job as long as the service holds it, and comes back later when told to."""
    connection = await Connection.to(url)
    try:
        ended = False
        while not ended:
            pending.add(number)
            answer = await connection.ask("GET", f"/job/{job_id}?wait={WAIT_S}")
            pending.discard(number)
            ended = answer.body["result"] is not None
            await asyncio.sleep(float(answer.headers.get("retry-after", "0")))
    finally:
        connection.close()


if __name__ == "__main__":
    main(sys.argv[1])
