"""How long a POST takes to its 202 while hundreds of clients wait: at a fixed rate, whatever the answers take."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import httpx

from benchmarks import jobs
from benchmarks.latency import Latency

RATE = 200.0
SUBMISSIONS = 1000
WAITING = 500
HELD = 8
"""Jobs that are under way or queued before the first POST, so that every worker is busy."""
WAIT_S = 30
SETTLE_S = 2.0
CANCELLED_AT_ONCE = 500
TIMEOUT = httpx.Timeout(60.0)


@dataclass(frozen=True)
class Enqueue:
    """Latencies from the moment that a POST was due, so that a slow answer delays none of those after it.

    `held` of the `waiting` clients were held by the service when the first POST went out; the others had been told to
    come back later, as there are places for so many only.
    """

    latency: Latency
    per_second: float
    waiting: int
    held: int


def main(url: str) -> None:
    """In a process of its own; prints the figures as JSON."""
    print(json.dumps(asyncio.run(_measure(url))))


def of_wire(wire: dict[str, Any]) -> Enqueue:
    """What `main` printed."""
    return Enqueue(**{**wire, "latency": Latency(**wire["latency"])})


async def _measure(url: str) -> dict[str, Any]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT, limits=limits, trust_env=False) as client:
        accepted = [await _submit(client) for _ in range(HELD)]
        pending: set[str] = set()
        waiters = [
            asyncio.create_task(_wait(client, accepted[number % HELD], f"{number}", pending))
            for number in range(WAITING)
        ]
        await asyncio.sleep(SETTLE_S)
        held, began = len(pending), time.perf_counter()
        posts = [asyncio.create_task(_post(client, began + number / RATE)) for number in range(SUBMISSIONS)]
        answers = [await post for post in posts]
        spent = max(ended for _, _, ended in answers) - began
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
        accepted += [job_id for job_id, _, _ in answers]
        for first in range(0, len(accepted), CANCELLED_AT_ONCE):
            named = {"job_ids": accepted[first : first + CANCELLED_AT_ONCE]}
            (await client.post("/jobs/cancel", json=named)).raise_for_status()
    latency = Latency.of([seconds for _, seconds, _ in answers])
    return {"latency": vars(latency), "per_second": SUBMISSIONS / spent, "waiting": WAITING, "held": held}


async def _post(client: httpx.AsyncClient, due: float) -> tuple[str, float, float]:
    await asyncio.sleep(max(0.0, due - time.perf_counter()))
    job_id = await _submit(client)
    ended = time.perf_counter()
    return job_id, ended - due, ended


async def _submit(client: httpx.AsyncClient) -> str:
    answer = await client.post("/evaluate", json=jobs.sleeping())
    if answer.status_code != httpx.codes.ACCEPTED:
        raise RuntimeError(f"the service did not take a job: {answer.text}")
    return str(answer.json()["job_id"])


async def _wait(client: httpx.AsyncClient, job_id: str, name: str, pending: set[str]) -> None:
    """A client that always waits, as long as it is let."""
    while True:
        pending.add(name)
        answer = await client.get(f"/job/{job_id}", params={"wait": WAIT_S})
        pending.discard(name)
        crowded = int(answer.headers.get("Retry-After", "0")) > 1
        await asyncio.sleep(int(answer.headers["Retry-After"]) if crowded else 0.1)


if __name__ == "__main__":
    main(sys.argv[1])
