"""`make demo`: starts everything, sends every example, shows the verdicts, stops everything."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import time

import httpx

from domain.settings import Settings
from stack import demo_report, environment
from stack.devices import DeviceError
from stack.example import every_example
from stack.example_run import Trial
from stack.local_stack import Stack, StartError, running
from stack.redis_server import NoRedisServer, free_port
from stack.serve import described
from stack.shutdown import Stop, stop_on_signals
from stack.terminal import Terminal

DEADLINE_S = 280.0
BEAT_S = 0.2
REQUEST_S = 30.0


def demo(settings: Settings) -> int:
    """Returns the exit status: 0 if every verdict is the expected one."""
    console = Terminal(soft_wrap=True)
    if not console.is_terminal:
        console.width = demo_report.WIDTH
    settings = settings.private()
    if not environment.is_set("PORT"):
        settings = dataclasses.replace(settings, port=free_port())
    stop_on_signals()
    try:
        console.print("Starting Redis, the API and the workers ...")
        began = time.monotonic()
        with running(settings) as stack:
            console.print(f"Ready at {stack.url} after {time.monotonic() - began:.1f} s ({described(stack.gpus)}).\n")
            trials = _run(stack, console)
    except Stop:
        console.print("Stopped before the end.")
        return 128 + signal.SIGINT
    except (StartError, DeviceError, NoRedisServer, httpx.HTTPError) as error:
        console.print(str(error), style="red")
        return 1
    return _conclude(trials, console, time.monotonic() - began, str(settings.log_dir))


def _run(stack: Stack, console: Terminal) -> list[Trial]:
    """Sends all examples and polls until every job is done or time is over; prints a line for each finished job."""
    deadline = time.monotonic() + DEADLINE_S
    with httpx.Client(base_url=stack.url, timeout=REQUEST_S, trust_env=False) as client:
        # Slow compilations come last: without a GPU, a compiler would disturb the timing of other jobs.
        examples = sorted(every_example(), key=lambda example: int(example.body["timeout"]))
        trials = [Trial.post(client, example, example.expected(gpu=bool(stack.gpus))) for example in examples]
        trials.sort(key=lambda trial: trial.example.name)
        waiting = trials
        while waiting and time.monotonic() < deadline:
            stack.tick(BEAT_S)
            for trial in waiting:
                with contextlib.suppress(httpx.HTTPError):  # It may be restarting: only the deadline ends it.
                    trial.poll(client)
                if trial.done:
                    count = sum(each.done for each in trials)
                    console.print(f"  {count}/{len(trials)} {trial.example.name}: {trial.got} ({trial.seconds:.1f} s)")
            waiting = [trial for trial in trials if not trial.done]
    console.print()
    console.print(demo_report.table(trials))
    return trials


def _conclude(trials: list[Trial], console: Terminal, seconds: float, logs: str) -> int:
    wrong = [trial.example.name for trial in trials if not trial.as_expected]
    console.print()
    if wrong:
        console.print(
            f"{len(wrong)} of {len(trials)} not as expected: {', '.join(wrong)}. See {logs}/.", style="bold red"
        )
        return 1
    console.print(f"All {len(trials)} verdicts as expected; {seconds:.0f} s, everything stopped.", style="bold green")
    return 0
