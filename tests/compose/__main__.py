"""`python -m tests.compose`: every example through a running compose service, while its parts are killed.

Needs a running service (docs/deployment.md) and one of its keys in API_KEY. COMPOSE is the command that speaks to
that service, by default `docker compose`. Ends with 1 where a verdict is wrong, a job is lost, or one has no end.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable

import httpx

from stack.example import Example, every_example
from stack.trial import Trial

DEADLINE_S = 420.0
POLL_S = 0.5
BACK_S = 90.0
ROUNDS = 2
"""How often all examples are sent while things are killed."""

COMPOSE = shlex.split(os.environ.get("COMPOSE", "docker compose"))
WORKER = os.environ.get("WORKER", "worker-cpu")


def compose(*arguments: str) -> None:
    """Raises subprocess.CalledProcessError."""
    subprocess.run([*COMPOSE, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill(service: str) -> None:
    print(f"  killing {service}", flush=True)
    compose("kill", "-s", "SIGKILL", service)
    compose("up", "-d", "--no-deps", service)


def stop(service: str) -> None:
    print(f"  stopping {service} and starting it again, as an upgrade does", flush=True)
    compose("up", "-d", "--no-deps", "--force-recreate", service)


def add(service: str) -> None:
    print(f"  adding a second {service}", flush=True)
    compose("up", "-d", "--no-deps", "--scale", f"{service}=2", service)


def wait_until_healthy(client: httpx.Client) -> None:
    deadline = time.monotonic() + BACK_S
    while time.monotonic() < deadline:
        try:
            if client.get("/health").status_code == httpx.codes.OK:
                return
        except httpx.HTTPError:
            pass
        time.sleep(POLL_S)
    raise SystemExit(f"the service is not healthy after {BACK_S:.0f} s")


def post(client: httpx.Client, examples: list[Example], rounds: int) -> list[Trial]:
    gpu = client.get("/health").raise_for_status().json()["gpu_available"]
    return [Trial.post(client, example, example.expected(gpu=gpu)) for _ in range(rounds) for example in examples]


def wait(client: httpx.Client, trials: list[Trial], event: Callable[[], None] | None = None) -> None:
    """Until all have ended; the event happens when the first has."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and not all(trial.done for trial in trials):
        for trial in (trial for trial in trials if not trial.done):
            try:
                trial.poll(client)
            except httpx.HTTPError:
                break
        if event is not None and any(trial.done for trial in trials):
            event()
            event = None
        time.sleep(POLL_S)


def told(title: str, trials: list[Trial], began: float) -> bool:
    wrong = [trial for trial in trials if not trial.as_expected]
    print(
        f"{title}: {len(trials) - len(wrong)} of {len(trials)} as expected, {time.monotonic() - began:.0f} s",
        flush=True,
    )
    for trial in wrong:
        print(f"  {trial.example.name} ({trial.job_id}): {trial.got}, {trial.result.get('error')}")
    return not wrong


def main() -> int:
    url, key = os.environ.get("API", "http://127.0.0.1:8000"), os.environ["API_KEY"]
    examples = every_example()
    events: dict[str, Callable[[], None] | None] = {
        "nothing killed": None,
        "redis killed": lambda: kill("redis"),
        "worker killed": lambda: kill(WORKER),
        "api killed": lambda: kill("api"),
        "worker replaced": lambda: stop(WORKER),
        # Last: a second container stays.
        "worker added": lambda: add(WORKER),
    }
    good = True
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30, trust_env=False) as client:
        for title, event in events.items():
            wait_until_healthy(client)
            began = time.monotonic()
            trials = post(client, examples, ROUNDS if event else 1)
            wait(client, trials, event)
            good = told(title, trials, began) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
