"""A real worker: jobs in, verdicts out, and what is left when a pool child or the whole worker is killed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from api import create_app
from api.http.context import KEY, AppContext
from domain.job import Stage, State
from domain.kernel import Kernel, KernelType
from domain.paths import ROOT
from domain.request import Request
from domain.settings import SANDBOX_LAYERS
from tasks.app import app
from tasks.fleet.heartbeat import workers
from tasks.jobs.job_store import JobStore
from tasks.jobs.submit import message_id, submit
from tasks.node import device_info
from tasks.node.device_info import CPU, Device, DeviceError, own_device
from tasks.worker.lifecycle import pin_device, worker_queues
from tests.child_processes import command_line
from tests.conftest import die_with_parent, free_port, start_redis
from tests.tasks.broker import published_to
from tests.tasks.example_jobs import seen, until

START_S = 60.0
BUSY_S = 0.3
"""CPU time that a runner without a submission has not used."""


RIGHT = "def kernel_fn(x):\n    return x + 1\n\ndef get_inputs():\n    return [torch.zeros(8)]\n"
HANGS = "def kernel_fn(x):\n    while True:\n        pass\n\ndef get_inputs():\n    return [torch.zeros(8)]\n"


def request(source: str, timeout: int = 60) -> Request:
    kernel = Kernel(source, KernelType.TORCH, metadata={"function_name": "kernel_fn"})
    return Request(kernel=kernel, num_trials=3, timeout=timeout)


@pytest.fixture
def records(redis: Redis) -> JobStore:
    return JobStore(redis, ttl_s=600)


@pytest.fixture
def worker(redis: Redis, redis_url: str, tmp_path: Path) -> Iterator[psutil.Process]:
    process = start_worker(redis_url, tmp_path)
    until(lambda: workers(redis), START_S)
    yield psutil.Process(process.pid)
    process.kill()
    process.wait()


def start_worker(redis_url: str, folder: Path, *before: str) -> subprocess.Popen[bytes]:
    log = (folder / "worker.log").open("ab")
    with log:
        return subprocess.Popen(
            [
                *(*before, sys.executable, "-m", "celery", "--app", "tasks.app", "worker", "--hostname", "cpu0@%h"),
                *("--concurrency", "2", "--without-gossip", "--without-mingle", "--loglevel", "INFO"),
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "CELERY_BROKER_URL": redis_url,
                "STATE_DIR": str(folder / "state"),
                "CUDA_VISIBLE_DEVICES": "",
            },
            stdout=log,
            stderr=log,
            preexec_fn=die_with_parent,
        )


def ended(records: JobStore, job_id: str) -> bool:
    return seen(records, job_id).state.terminal


def owner_of(worker: psutil.Process, redis: Redis) -> psutil.Process:
    """The pool child that has children of its own: its zygote and runner."""
    busy = [child for child in worker.children() if child.children()]
    assert busy
    return busy[0]


OWN_SHM = (
    *("unshare", "--mount", "sh", "-c"),
    'mount -t tmpfs -o size=64k none /dev/shm && eval "$1" && shift && exec "$@"',
)
with_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run([*OWN_SHM, "sh", "true", "true"], capture_output=True).returncode != 0,
    reason="needs the right to mount",
)


@with_mounts
def test_a_start_with_a_full_dev_shm_says_what_to_do(redis_url: str, tmp_path: Path) -> None:
    fill = "head -c 64k /dev/zero > /dev/shm/fills"
    assert start_worker(redis_url, tmp_path, *OWN_SHM, "sh", fill).wait(START_S) == 1
    log = (tmp_path / "worker.log").read_text()
    assert "/dev/shm or /tmp is full or closed" in log and "`df /dev/shm /tmp`" in log and "Traceback" not in log


@with_mounts
def test_a_full_dev_shm_ends_no_worker(redis: Redis, redis_url: str, records: JobStore, tmp_path: Path) -> None:
    process = start_worker(redis_url, tmp_path, *OWN_SHM, "sh", "true")
    try:
        until(lambda: workers(redis), START_S)
        fills = Path(f"/proc/{process.pid}/root/dev/shm/fills")
        with suppress(OSError):
            fills.write_bytes(bytes(1 << 16))
        main = psutil.Process(process.pid)
        main.children()[0].kill()
        until(lambda: workers(redis)[0].failing)
        [failure] = workers(redis)[0].failing
        assert "the start of a pool child failed and will be retried: /dev/shm or /tmp is full" in failure
        assert len(main.children()) == 1
        assert main.cpu_percent(2.0) < 15, "a try at every check would take a third of a core"
        fills.unlink()
        until(lambda: len(main.children()) == 2 and not workers(redis)[0].failing)
        job_id = submit(records, request(RIGHT)).job_id
        until(lambda: ended(records, job_id), START_S)
        assert seen(records, job_id).state is State.COMPLETED
    finally:
        process.kill()
        process.wait()


def test_a_job_is_judged_and_the_pool_child_never_loads_torch_in_the_main_process(
    worker: psutil.Process, records: JobStore, redis: Redis, tmp_path: Path
) -> None:
    job_id = submit(records, request(RIGHT)).job_id
    until(lambda: ended(records, job_id), START_S)
    view = seen(records, job_id)
    assert view.state is State.COMPLETED, view.error
    assert view.result is not None and view.result["verdict"] == "passed", view.result
    [alive] = workers(redis)
    assert view.worker == alive.name
    assert (alive.pid, alive.max_workers, alive.gpu_available) == (worker.pid, 2, False)
    assert tuple(alive.sandbox) == SANDBOX_LAYERS and alive.sandbox["no_new_privileges"]["active"] is True
    assert "sandbox: no_new_privileges holds" in (tmp_path / "worker.log").read_text()
    assert not any("libtorch" in region.path for region in worker.memory_maps())
    until(lambda: redis.llen("evaluate") == redis.hlen("unacked") == 0)


@pytest.mark.slow  # As a fault of the short campaign of tests/chaos; the next one too.
def test_a_killed_pool_child_costs_an_attempt_not_the_job(
    worker: psutil.Process, records: JobStore, redis: Redis
) -> None:
    job_id = submit(records, request(HANGS)).job_id
    until(lambda: seen(records, job_id).stage in (Stage.VALIDATE, Stage.TIME), START_S)
    child = owner_of(worker, redis)
    below = child.children(recursive=True)
    child.send_signal(signal.SIGKILL)
    until(lambda: seen(records, job_id).attempt == 2)
    reasons = [entry.reason for entry in seen(records, job_id).timeline if entry.reason]
    assert len(reasons) == 1 and "SIGKILL" in reasons[0]
    until(lambda: not any(process.is_running() for process in below))
    until(lambda: seen(records, job_id).stage in (Stage.VALIDATE, Stage.TIME), START_S)
    records.cancel(job_id)
    until(lambda: seen(records, job_id).state is State.CANCELLED)
    until(lambda: redis.hlen("unacked") == 0)
    after = submit(records, request(RIGHT)).job_id
    until(lambda: ended(records, after), START_S)
    assert seen(records, after).state is State.COMPLETED


def test_a_task_that_an_operator_terminates_costs_an_attempt_and_is_no_fault_of_the_worker(
    worker: psutil.Process, records: JobStore, redis: Redis
) -> None:
    job_id = submit(records, request(HANGS)).job_id
    until(lambda: seen(records, job_id).stage in (Stage.VALIDATE, Stage.TIME), START_S)
    app.control.revoke(message_id(job_id, 1), terminate=True, signal="SIGKILL")
    until(lambda: seen(records, job_id).attempt == 2)
    assert [entry.reason for entry in seen(records, job_id).failed_attempts] == ["an operator terminated its task"]
    assert redis.hlen("workers:faults") == 0
    records.cancel(job_id)
    until(lambda: seen(records, job_id).state is State.CANCELLED, START_S)  # The next child imports first.


def test_a_pool_child_that_is_killed_as_it_starts_is_no_reason_to_give_up(
    redis: Redis, redis_url: str, records: JobStore, tmp_path: Path
) -> None:
    process = start_worker(redis_url, tmp_path)
    try:
        main = psutil.Process(process.pid)

        found: list[psutil.Process] = []

        def child() -> bool:
            found[:] = [one for one in main.children() if "celery" in command_line(one)]
            return bool(found)

        until(child, START_S)
        found[0].kill()
        job_id = submit(records, request(RIGHT)).job_id
        until(lambda: ended(records, job_id), START_S)
        assert seen(records, job_id).state is State.COMPLETED and process.poll() is None
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow  # tests/stack/test_serve.py kills one too; here it waits until the job's lease runs out.
def test_a_killed_worker_is_replaced_and_its_job_run_again(
    worker: psutil.Process, records: JobStore, redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    job_id = submit(records, request(HANGS, timeout=15)).job_id
    until(lambda: seen(records, job_id).stage in (Stage.VALIDATE, Stage.TIME), START_S)
    below = worker.children(recursive=True)
    worker.send_signal(signal.SIGKILL)
    until(lambda: not any(process.is_running() for process in below))
    second = start_worker(redis_url, tmp_path)
    until(lambda: seen(records, job_id).attempt == 2, 30.0)
    until(lambda: ended(records, job_id), START_S)
    view = seen(records, job_id)
    assert view.result is not None and view.result["verdict"] == "timeout"
    # Asked to stop, it finishes what it runs and takes its heartbeat back.
    last = submit(records, request(RIGHT)).job_id
    until(lambda: seen(records, last).state is not State.QUEUED)
    second.terminate()
    assert second.wait(timeout=START_S) == 0
    assert seen(records, last).state is State.COMPLETED
    assert workers(redis) == []


@pytest.mark.slow
def test_a_job_outlives_a_restart_of_redis(tmp_path: Path) -> None:
    port = free_port()
    url = f"redis://127.0.0.1:{port}/0"
    server = start_redis(tmp_path, port)
    with Redis(port=port, retry=Retry(ExponentialBackoff(cap=0.5, base=0.01), 20)) as redis, published_to(url):
        records = JobStore(redis, ttl_s=600)
        process = start_worker(url, tmp_path)
        job_id = submit(records, request(HANGS, timeout=10)).job_id
        until(lambda: seen(records, job_id).stage in (Stage.VALIDATE, Stage.TIME), START_S)
        server.kill()
        server.wait()
        server = start_redis(tmp_path, port)
        until(lambda: ended(records, job_id), START_S)
        view = seen(records, job_id)
        assert (view.state, view.attempt) == (State.COMPLETED, 1), view
        assert view.result is not None and view.result["verdict"] == "timeout"
        after = submit(records, request(RIGHT)).job_id
        until(lambda: ended(records, after), START_S)
        assert seen(records, after).state is State.COMPLETED
        process.kill()
        process.wait()
    server.terminate()
    server.wait()


def busy_runner(worker: psutil.Process) -> psutil.Process | None:
    """One that is computing; a zygote's child, of one of the pool's."""
    zygotes = [zygote for child in worker.children() for zygote in child.children()]
    with suppress(psutil.NoSuchProcess):
        runners = [runner for zygote in zygotes for runner in zygote.children()]
        return next((runner for runner in runners if runner.cpu_times().user > BUSY_S), None)
    return None


def test_a_cancelled_jobs_runner_is_killed(worker: psutil.Process, records: JobStore, redis: Redis) -> None:
    app = create_app()
    job_id = submit(records, request(HANGS, timeout=600)).job_id
    until(lambda: busy_runner(worker), START_S)
    runner = busy_runner(worker)
    assert runner is not None and seen(records, job_id).stage is Stage.VALIDATE
    pidfd = os.pidfd_open(runner.pid)
    assert app.test_client().delete(f"/job/{job_id}").status_code == 202
    gone, _, _ = select.select([pidfd], [], [], START_S)
    os.close(pidfd)
    assert gone, "long before its own time is over"
    until(lambda: seen(records, job_id).state is State.CANCELLED)
    context: AppContext = app.extensions[KEY]
    context.long_poll.hub.close()


def test_a_cancelled_job_ends_wherever_it_is_and_the_next_has_the_device(
    worker: psutil.Process, records: JobStore, redis: Redis, tmp_path: Path
) -> None:
    running = submit(records, request(HANGS)).job_id
    until(lambda: seen(records, running).stage in (Stage.VALIDATE, Stage.TIME), START_S)
    waiting = submit(records, request(RIGHT)).job_id
    until(lambda: seen(records, waiting).stage is Stage.WAIT_FOR_DEVICE, START_S)
    queued, behind = (submit(records, request(RIGHT)).job_id for _ in range(2))
    assert [seen(records, each).queue_position for each in (queued, behind)] == [0, 1]
    records.cancel(queued)
    assert seen(records, queued).state is State.CANCELLED
    assert seen(records, behind).queue_position == 0
    records.cancel(running)
    until(lambda: seen(records, running).state is State.CANCELLED)
    until(lambda: ended(records, waiting) and ended(records, behind), START_S)
    assert seen(records, waiting).state is seen(records, behind).state is State.COMPLETED
    assert seen(records, queued).attempt == 0
    # The message of the cancelled one began the other, whose own found none.
    until(lambda: f"message {behind}.1: no job to begin" in (tmp_path / "worker.log").read_text())
    until(lambda: redis.hlen("unacked") == redis.llen("evaluate") == 0)


def test_a_worker_whose_card_vanishes_goes_on_to_claim_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their faults quarantine it. Without a claim it would use up the messages of all workers."""
    cards = [CPU]

    def vanishing() -> Device:
        if not cards:
            raise DeviceError("GPU is lost")
        return cards.pop()

    monkeypatch.setattr(device_info, "detect", vanishing)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    own_device.cache_clear()
    pin_device()
    assert own_device() == CPU and worker_queues("here") == ("evaluate.gpu.cpu", "evaluate.here")
    own_device.cache_clear()
