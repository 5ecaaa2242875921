"""Every example through a service of compose, from outside, while its parts are killed, added and replaced."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

from domain.result import Status
from stack.example import Example, every_example
from stack.example_run import Trial
from tests.compose.project import BUILT, Project

DEADLINE_S = 420.0
POLL_S = 0.5
BACK_S = 120.0
WORKER = "worker-cpu"
SLOW = Example(
    name="slow",
    endpoint="/evaluate",
    body={
        # Loaded for so long, in each of its processes: it is at work while everything around it is replaced.
        "kernel": {
            "source_code": "import time\nimport torch\ntime.sleep(20)\n\ndef kernel_fn(x):\n    return x + 1\n\n"
            "def get_inputs():\n    return [torch.randn(64)]\n",
            "kernel_type": "torch",
        },
        "num_trials": 2,
        "timeout": 300,
    },
    on_gpu=Status.PASSED,
    on_cpu=Status.PASSED,
    faster=False,
    note="runs for a while",
)


@dataclass
class Ledger:
    """Every job that was accepted, and what became of it."""

    project: Project
    client: httpx.Client
    say: Callable[[str], None]
    trials: list[Trial] = field(default_factory=list)
    good: bool = True

    def until_healthy(self) -> None:
        """Raises TimeoutError."""
        deadline = time.monotonic() + BACK_S
        while time.monotonic() < deadline:
            try:
                if self.client.get("/health").status_code == httpx.codes.OK:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(POLL_S)
        raise TimeoutError(f"the service is not healthy after {BACK_S:.0f} s")

    def post(self, example: Example) -> Trial:
        self.trials.append(Trial.post(self.client, example, example.expected(gpu=False)))
        return self.trials[-1]

    def wait(self, trials: list[Trial], event: Callable[[], None] | None = None) -> None:
        """Until all have ended, or DEADLINE_S are over; the event happens when the first has."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline and not all(trial.done for trial in trials):
            for trial in (trial for trial in trials if not trial.done):
                try:
                    trial.poll(self.client)
                except httpx.HTTPError:
                    break
            if event is not None and any(trial.done for trial in trials):
                event()
                event = None
            time.sleep(POLL_S)

    def told(self, title: str, trials: list[Trial], began: float) -> None:
        # By how much one is faster is no question for a machine that does all this at once.
        wrong = [trial for trial in trials if not trial.done or trial.got != trial.expected]
        again = sum(len((trial.job or {}).get("failed_attempts") or []) for trial in trials)
        self.say(
            f"{title}: {len(trials) - len(wrong)} of {len(trials)} as expected, {time.monotonic() - began:.0f} s"
            + (f"; attempts lost and made again: {again}" if again else "")
        )
        for trial in wrong:
            self.say(f"  {trial.example.name}: {trial.got}, expected {trial.expected}; {trial.detail}")
        self.good = self.good and not wrong

    def judge(self, title: str, rounds: int, event: Callable[[], None] | None = None) -> None:
        """All examples, so often; the event happens while they are judged."""
        self.until_healthy()
        began = time.monotonic()
        trials = [self.post(example) for _ in range(rounds) for example in every_example()]
        self.wait(trials, event)
        self.told(title, trials, began)

    def kill(self, service: str) -> None:
        self.project.compose("kill", "-s", "SIGKILL", service)
        self.project.compose("up", "-d", "--no-deps", service)

    def add(self) -> None:
        self.project.compose("up", "-d", "--no-deps", "--scale", f"{WORKER}=2", WORKER)
        if len(self.project.containers(WORKER)) != 2:
            raise AssertionError("no second container of workers was started")

    def upgrade(self, tag: str) -> None:
        """Everything is replaced by images of that tag, as docs/deployment.md does it, with a job in flight."""
        for service in BUILT:
            image = f"kernel-eval-{service}"
            before = f"{image}:{self.project.variables['TAG']}"
            self.project.engine.image(f"{image}:{tag}", f"FROM {before}\nLABEL upgrade={tag}\n")
        self.until_healthy()
        began = time.monotonic()
        slow = self.post(SLOW)
        while not slow.done and slow.got != "running":
            slow.poll(self.client)
            time.sleep(POLL_S)
        running = slow.got
        self.project.write(TAG=tag)
        self.project.compose("up", "-d")
        took = time.monotonic() - began
        self.wait([slow])
        attempt = (slow.job or {}).get("attempt")
        self.say(f"  the upgrade took {took:.0f} s; the job was at `{running}` before, and ended in attempt {attempt}")
        self.told("upgraded with a job in flight", [slow], began)
        images = {service: self.project.inspected(service)["Config"]["Image"] for service in BUILT}
        self.good &= attempt == 1 and all(image.endswith(f":{tag}") for image in images.values())

    def balance(self) -> None:
        """Each accepted job has ended once, by the service's own books."""
        self.until_healthy()
        lines = [line for line in self.client.get("/metrics").text.splitlines() if not line.startswith("#")]
        submitted, finished = (
            int(sum(float(line.split()[-1]) for line in lines if line.startswith(f"kernel_eval_jobs_{name}_total")))
            for name in ("submitted", "finished")
        )
        ended = sum(trial.done for trial in self.trials)
        self.say(f"books: {len(self.trials)} accepted by us, {submitted} by the service; ended: {ended}, {finished}")
        self.good &= len(self.trials) == submitted == ended == finished

    def briefly(self) -> None:
        """The events of the short trial."""
        self.judge("nothing killed", 1)
        self.judge("redis killed (SIGKILL)", 2, lambda: self.kill("redis"))
        self.judge("the workers killed", 2, lambda: self.kill(WORKER))
        self.upgrade("after")
        self.balance()

    def everything(self) -> None:
        self.judge("nothing killed", 1)
        self.judge("redis killed (SIGKILL)", 2, lambda: self.kill("redis"))
        self.judge("the workers killed", 2, lambda: self.kill(WORKER))
        self.judge("the API killed", 2, lambda: self.kill("api"))
        self.judge("a second container of workers added under load", 2, self.add)
        self.upgrade("after")
        self.balance()
