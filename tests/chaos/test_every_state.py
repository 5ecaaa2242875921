"""Whatever is killed, in whichever state a job is: every accepted job ends once, and the books agree.

Signals are sent when a state has been observed, never after a while. What is killed where:

| killed              | queued | building | waiting | running | finishing |
| ------------------- | ------ | -------- | ------- | ------- | --------- |
| builder or runner   |        | retried  | retried | retried |           |
| zygote              |        | retried  | retried | retried |           |
| pool child          | unseen | retried  | retried | retried | retried   |
| worker, node        | moved  | retried  | retried | retried | retried   |
| gunicorn            | unseen |          |         | unseen  |           |
| Redis, or away      | unseen | unseen   | unseen  | unseen  | unseen    |
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Thread

import httpx
import psutil
import pytest

from domain.job import Stage, State
from domain.kernel import Kernel, KernelType
from domain.request import Request
from tasks.jobs.job_store import MAX_ATTEMPTS, JobView
from tasks.node.device_lease import device_lease
from tests.chaos.ledger import Ledger
from tests.chaos.service import START_S, Service, service, wire
from tests.tasks.example_jobs import give_to, until

INPUTS = "\ndef get_inputs():\n    return [torch.zeros(8)]\n"
RIGHT = "def kernel_fn(x):\n    return x + 1\n" + INPUTS
HANGS = "def kernel_fn(x):\n    while True:\n        pass\n" + INPUTS
SEGFAULT = "import ctypes\ndef kernel_fn(x):\n    ctypes.string_at(0)\n" + INPUTS
EXITS = "import os\ndef kernel_fn(x):\n    os._exit(3)\n" + INPUTS
KILLS_ITSELF = "import os\ndef kernel_fn(x):\n    os.kill(os.getpid(), 9)\n" + INPUTS
BUILDS_FOR_EVER = "while True:\n    pass\n"

BUSY_S = 0.3
"""CPU time that a runner without a submission has not used."""

SOON_S = 20.0
"""Until a job of a dead owner has its next attempt, in fast motion, on a machine with other things to do."""

AWAY_S = 60.0

NOTICED_S = 30.0
"""The same at the real settings: what is promised."""


def request(source: str, timeout: int = 60) -> Request:
    return Request(kernel=Kernel(source, KernelType.TORCH), num_trials=1, timeout=timeout)


class DeviceHeld:
    """The lease of the CPU in this process's hands: `held` once it is ours, until `release`."""

    def __init__(self) -> None:
        self._held, self._over = Event(), Event()
        self._thread = Thread(target=self._hold, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        assert self._held.wait(START_S), "the device was not given back"

    def release(self) -> None:
        self._over.set()
        self._thread.join()

    def _hold(self) -> None:
        with device_lease("cpu", lambda: False):
            self._held.set()
            self._over.wait()


@dataclass
class Jobs:
    """One job in each state, all given to one worker that has room for three."""

    made: Service
    queued: str
    building: str
    waiting: str
    running: str

    def all(self) -> list[str]:
        return [self.queued, self.building, self.waiting, self.running]

    def under_work(self) -> list[str]:
        return [self.building, self.waiting, self.running]


def hand_to(made: Service, ledger: Ledger, worker: str, source: str, timeout: int = 60) -> str:
    """A job whose first attempt is that worker's."""
    job_id = ledger.enter(f"{worker}-{len(ledger.ends)}")
    give_to(made.redis, made.records, f"{worker}@test", job_id, request(source, timeout))
    return job_id


def stage_of(made: Service, job_id: str) -> Stage:
    return made.view(job_id).stage


def until_stage(made: Service, job_id: str, stage: Stage) -> None:
    def reached() -> bool:
        now = stage_of(made, job_id)
        assert stage is Stage.DONE or now is not Stage.DONE, f"{job_id} ended before it was seen in {stage}"
        return now is stage

    until(reached, START_S)


def until_end(made: Service, *job_ids: str) -> None:
    until(lambda: all(made.view(job_id).state.terminal for job_id in job_ids), START_S)


def until_attempt(made: Service, attempt: int, *job_ids: str, seconds: float = SOON_S) -> None:
    until(lambda: all(made.view(job_id).attempt == attempt for job_id in job_ids), seconds)


def in_every_state(made: Service, ledger: Ledger, worker: str) -> Jobs:
    """A job in each state on that worker, which has three children; the running one would time out after 5 s."""
    device = DeviceHeld()
    device.wait()
    building = hand_to(made, ledger, worker, BUILDS_FOR_EVER)
    running = hand_to(made, ledger, worker, HANGS, timeout=5)
    until_stage(made, running, Stage.WAIT_FOR_DEVICE)
    waiting = hand_to(made, ledger, worker, RIGHT)
    until_stage(made, waiting, Stage.WAIT_FOR_DEVICE)
    until_stage(made, building, Stage.BUILD)
    queued = hand_to(made, ledger, worker, RIGHT)
    device.release()
    until_stage(made, running, Stage.VALIDATE)
    jobs = Jobs(made, queued, building, waiting, running)
    states = [made.view(job_id).state for job_id in jobs.all()]
    assert states == [State.QUEUED, State.BUILDING, State.WAITING, State.RUNNING]
    return jobs


def reasons(view: JobView) -> list[str]:
    return [entry.reason for entry in view.failed_attempts]


def owners(view: JobView) -> list[str]:
    return [entry.worker for entry in view.failed_attempts]


def kill(processes: list[psutil.Process]) -> None:
    """SIGKILL to all; returns when they and all below them are gone."""
    assert processes
    family = [*processes, *(below for process in processes for below in process.children(recursive=True))]
    for process in processes:
        process.kill()
    until(lambda: not any(_runs(process) for process in family), 10.0)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow  # For its length: ten minutes are all that `make test` may take on two cores.
def test_pool_children_and_zygotes_killed_in_every_state(tmp_path: Path) -> None:
    with service(tmp_path, a=3, b=3) as (made, ledger):
        jobs = in_every_state(made, ledger, "a")
        device = DeviceHeld()  # In line behind both; they will be dead.
        kill(made.pool_children("a"))
        until_attempt(made, 2, *jobs.under_work(), seconds=5.0)
        for job_id in jobs.under_work():
            view = made.view(job_id)
            assert (view.worker, owners(view)) == ("b@test", ["a@test"])
            assert "SIGKILL" in reasons(view)[0]
        device.wait()
        until_stage(made, jobs.waiting, Stage.WAIT_FOR_DEVICE)
        until_stage(made, jobs.running, Stage.WAIT_FOR_DEVICE)
        kill(made.zygotes("b"))
        device.release()
        # The last attempts come one after another. This one would hold up the others.
        made.records.cancel(jobs.building)
        # Three faults in a row: either may be testing its device first.
        until_attempt(made, 3, jobs.running, seconds=START_S)
        # Both have failed it, so that either may be third. It is the last attempt.
        until_stage(made, jobs.running, Stage.VALIDATE)
        third = made.view(jobs.running).worker or ""
        kill(made.zygotes(third.removesuffix("@test")))
        until_end(made, *jobs.all())
        views = ledger.balance(made.url)
        assert (views[jobs.queued].state, views[jobs.queued].attempt) == (State.COMPLETED, 1)
        waited = views[jobs.waiting]
        assert waited.state is State.COMPLETED, reasons(waited)
        ended = views[jobs.running]
        assert (ended.state, ended.attempt) == (State.FAILED, MAX_ATTEMPTS)
        assert len(ended.failed_attempts) == MAX_ATTEMPTS
        assert ended.error is not None and ended.error.count("\n") == MAX_ATTEMPTS - 1
        assert "zygote" in reasons(ended)[1] and "zygote" in reasons(ended)[2]
        answer = httpx.get(f"{made.url}/job/{jobs.running}").json()
        assert (answer["state"], answer["error_type"]) == ("failed", "infrastructure_error")
        assert answer["failed_attempts"] == [asdict(attempt) for attempt in ended.failed_attempts]
        made.stop()
        made.assert_nothing_left()


@pytest.mark.slow  # For its length; the campaign kills workers and Redis too.
def test_a_worker_killed_and_then_redis_in_every_state(tmp_path: Path) -> None:
    with service(tmp_path, a=3, b=4) as (made, ledger), ThreadPoolExecutor(1) as pool:
        jobs = in_every_state(made, ledger, "a")
        waits: Future[httpx.Response] = pool.submit(
            httpx.get, f"{made.url}/job/{jobs.waiting}", params={"wait": 120}, timeout=150
        )
        device = DeviceHeld()
        below = made.below("a")
        made.kill("a")
        until(lambda: not any(_runs(process) for process in below), 10.0)
        left = made.job_folders()
        device.wait()
        until_attempt(made, 2, *jobs.under_work())
        until_attempt(made, 1, jobs.queued)
        assert {made.view(job_id).worker for job_id in jobs.all()} == {"b@test"}
        for job_id in (jobs.queued, jobs.waiting, jobs.running):
            until_stage(made, job_id, Stage.WAIT_FOR_DEVICE)
        until_stage(made, jobs.building, Stage.BUILD)
        made.kill("redis")
        made.start_redis()
        device.release()
        until_stage(made, jobs.running, Stage.VALIDATE)  # The others before it or behind it.
        made.kill("redis")
        until(lambda: len(made.job_folders() - left) == 1, START_S)  # All but the one that builds have finished.
        made.start_redis()
        until_end(made, jobs.queued, jobs.waiting, jobs.running)
        made.records.cancel(jobs.building)
        until_end(made, jobs.building)
        waited = waits.result()
        assert waited.status_code == 200, waited.text
        assert waited.json()["state"] == "completed"
        assert [entry["worker"] for entry in waited.json()["result"]["failed_attempts"]] == ["a@test"]
        views = ledger.balance(made.url)
        assert [views[job_id].attempt for job_id in jobs.all()] == [1, 2, 2, 2]
        assert verdict(views[jobs.running]) == "timeout"
        # Stages that began while Redis was away are in its record too.
        second = [step.stage for step in views[jobs.running].timeline if step.attempt == 2]
        assert second == ["queued", "build", "wait_for_device", "load", "validate", "done"]
        after = ledger.enter(made.submit(request(RIGHT)))
        until_end(made, after)
        assert verdict(made.view(after)) == "passed"
        made.stop()
        made.assert_nothing_left()


def verdict(view: JobView) -> str:
    assert view.result is not None, view
    return str(view.result["verdict"])


@pytest.mark.slow  # For its length; Redis in that moment is in the test above.
def test_owners_killed_after_their_verdict_and_before_it_is_written(tmp_path: Path) -> None:
    with service(tmp_path, a=1, b=1) as (made, ledger):
        jobs = {name: hand_to(made, ledger, name, HANGS, timeout=3) for name in ("a", "b")}
        both = {Stage.WAIT_FOR_DEVICE, Stage.VALIDATE}
        until(lambda: {stage_of(made, job_id) for job_id in jobs.values()} == both, START_S)
        made.kill("redis")
        until(lambda: not made.job_folders(), START_S)
        kill(made.pool_children("a"))
        made.kill("b")
        made.start_redis()
        made.start_worker("b", 1)
        until_end(made, *jobs.values())
        views = ledger.balance(made.url)
        for name, job_id in jobs.items():
            assert (verdict(views[job_id]), views[job_id].attempt) == ("timeout", 2)
            assert owners(views[job_id]) == [f"{name}@test"]
        made.stop()
        made.assert_nothing_left()


OWN_CRASHES = {SEGFAULT: "crashed", EXITS: "crashed", KILLS_ITSELF: "runtime_error"}


@pytest.mark.slow  # For its length.
def test_what_dies_of_a_kernel_is_a_verdict_and_gunicorn_is_no_part_of_it(tmp_path: Path) -> None:
    with service(tmp_path, a=2) as (made, ledger), ThreadPoolExecutor(2) as pool:
        own = {ledger.enter(made.submit(request(source))): word for source, word in OWN_CRASHES.items()}
        until_end(made, *own)
        # A builder and a runner, killed by somebody else: that is no verdict about the submission.
        retried = []
        for source, stage in ((BUILDS_FOR_EVER, Stage.BUILD), (HANGS, Stage.VALIDATE)):
            job_id = ledger.enter(made.submit(request(source, timeout=8)))
            for attempt in range(1, MAX_ATTEMPTS + 1):
                until_attempt(made, attempt, job_id, seconds=START_S)
                until_stage(made, job_id, stage)
                until(lambda: busiest(made.runners("a")) is not None, START_S)
                # With the null runners, which are replaced.
                kill(made.runners("a"))
            until_end(made, job_id)
            retried.append(job_id)
        # gunicorn: one process, then all of it, while the client waits and the job runs.
        job_id = ledger.enter(made.submit(request(HANGS, timeout=20)))
        until_stage(made, job_id, Stage.VALIDATE)
        for strike in (lambda: kill(made.below("api")), lambda: kill_with_children(made, "api")):
            waits = pool.submit(httpx.get, f"{made.url}/job/{job_id}", params={"wait": 60}, timeout=90)
            until(lambda: made.redis.pubsub_numsub("jobs:changed")[0][1] > 0)
            strike()
            with pytest.raises(httpx.TransportError):
                waits.result()
            if "api" not in made.processes:
                made.start_api()
            until(made.answers, START_S)
        assert not made.view(job_id).state.terminal
        until_end(made, job_id)
        own[job_id] = "timeout"
        views = ledger.balance(made.url)
        for job_id, word in own.items():
            assert (verdict(views[job_id]), views[job_id].attempt, views[job_id].failed_attempts) == (word, 1, [])
        for job_id in retried:
            assert (views[job_id].state, len(reasons(views[job_id]))) == (State.FAILED, MAX_ATTEMPTS)
            assert all("was killed (SIGKILL)" in reason for reason in reasons(views[job_id]))
        made.stop()
        made.assert_nothing_left()


def busiest(processes: list[psutil.Process]) -> psutil.Process | None:
    """One that is computing: an endless submission."""
    return next((process for process in processes if process.cpu_times().user > BUSY_S), None)


def kill_with_children(made: Service, name: str) -> None:
    below = made.below(name)
    made.kill(name)
    for process in below:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    until(lambda: not any(_runs(process) for process in below), 10.0)


@pytest.mark.slow  # The same as above at the real settings, with both clocks: a minute without Redis.
def test_a_minute_without_redis(tmp_path: Path) -> None:
    with service(tmp_path, app="tasks.app", a=3) as (made, ledger), ThreadPoolExecutor(1) as pool:
        jobs = in_every_state(made, ledger, "a")
        waits = pool.submit(httpx.get, f"{made.url}/job/{jobs.queued}", params={"wait": 200}, timeout=230)
        until(lambda: made.redis.pubsub_numsub("jobs:changed")[0][1] > 0)
        made.kill("redis")
        away_until = time.monotonic() + AWAY_S
        refused = httpx.post(f"{made.url}/evaluate", json=wire(request(RIGHT)), timeout=30)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
        until(lambda: time.monotonic() > away_until, AWAY_S + 1)
        made.start_redis()
        until_end(made, *jobs.all())
        views = ledger.balance(made.url)
        verdicts = [verdict(views[job_id]) for job_id in jobs.all()]
        assert verdicts == ["passed", "timeout", "passed", "timeout"]
        assert [views[job_id].attempt for job_id in jobs.all()] == [1, 1, 1, 1]
        assert waits.result().json()["state"] == "completed"
        made.stop()
        made.assert_nothing_left()


@pytest.mark.slow  # Two tests above do it in fast motion; this one holds the real settings against the promise.
def test_a_dead_node_is_noticed_and_its_jobs_run_again_on_another(tmp_path: Path) -> None:
    with service(tmp_path, app="tasks.app", a=3, b=4) as (made, ledger):
        jobs = in_every_state(made, ledger, "a")
        killed_at = time.monotonic()
        made.kill("a")
        until_attempt(made, 2, *jobs.under_work(), seconds=NOTICED_S)
        until_attempt(made, 1, jobs.queued, seconds=NOTICED_S)
        took_s = time.monotonic() - killed_at
        print(f"the dead node's jobs were begun again after {took_s:.1f} s")
        assert took_s < NOTICED_S
        made.records.cancel(jobs.building)
        until_end(made, *jobs.all())
        views = ledger.balance(made.url)
        assert {view.worker for view in views.values()} == {"b@test"}
        assert verdict(views[jobs.running]) == "timeout"
        made.stop()
        made.assert_nothing_left()
