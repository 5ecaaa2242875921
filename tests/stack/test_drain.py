"""Asked to stop, the service finishes what runs and keeps what is queued; asked again, it stops at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from redis import Redis

from domain.job import State
from stack.child import Child
from stack.drain import AGAIN
from stack.redis_server import RedisServer
from tasks.jobs.job_store import JobStore
from tests.chaos.load import INPUTS, RIGHT, SLOW_RUN
from tests.stack.serving import READY_S, Serving, assert_nothing_left, serve, wait_for

ONE_AT_A_TIME = {"GPU_DEVICE": "cpu", "MAX_WORKERS": "1"}
HANGING = "def kernel_fn(x):\n    while True:\n        pass\n" + INPUTS


def evaluate(source: str) -> dict[str, Any]:
    return {"kernel": {"source_code": source, "kernel_type": "torch"}, "num_trials": 1, "timeout": 100}


def accepted(serving: Serving, source: str) -> str:
    answer = httpx.post(f"{serving.url}/evaluate", json=evaluate(source), timeout=30)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["job_id"])


def is_running(serving: Serving, job_id: str) -> bool:
    return serving.job(job_id).get("state") == "running"


@contextmanager
def kept_records(folder: Path) -> Iterator[JobStore]:
    """What the next start would find."""
    server = RedisServer.on_free_port(folder)
    child = Child.start(server.program(dict(os.environ)))
    try:
        wait_for(server.answers, READY_S, "Redis answers")
        with Redis.from_url(server.url) as redis:
            yield JobStore(redis, ttl_s=600)
    finally:
        child.kill()
        child.close()


def test_a_restart_finishes_what_runs_and_begins_what_is_queued_afterwards(tmp_path: Path) -> None:
    def builds() -> list[Path]:
        return list((serving.queue.parent / "builds" / "entries").glob("*.zip"))

    with serve(tmp_path, piped=True, DRAIN_SECONDS="100", **ONE_AT_A_TIME) as serving:
        wait_for(serving.ready, READY_S, "it is ready")
        first, second = accepted(serving, SLOW_RUN), accepted(serving, RIGHT)
        wait_for(lambda: is_running(serving, first), READY_S, "the first job runs")
        processes = serving.descendants()
        assert serving.process.stdout is not None
        serving.process.stdout.close()  # `make serve | tee log`: the same Ctrl-C has ended `tee`.
        serving.process.send_signal(signal.SIGTERM)
        assert_nothing_left(serving, processes)
        assert "waiting for 1 running job, at most 100 s" in serving.log()
        assert "1 queued job left in Redis" in serving.log()
    assert len(builds()) == 1, "what was built is kept for the next start, too"
    with serve(tmp_path, serving.port, **ONE_AT_A_TIME) as again:
        wait_for(again.ready, READY_S, "it is ready again")
        finished = again.job(first)
        wait_for(lambda: again.job(second).get("state") == "completed", READY_S, "the second job has ended")
        for job in (finished, again.job(second)):
            assert (job["state"], job["result"]["verdict"]) == ("completed", "passed")
            assert (job["attempt"], job["failed_attempts"]) == (1, [])
        assert first not in (again.logs / "cpu0.log").read_text(), "it is not begun again"
    assert len(builds()) == 2


def test_new_jobs_are_refused_meanwhile_and_a_second_signal_ends_what_runs(tmp_path: Path) -> None:
    with serve(tmp_path, DRAIN_SECONDS="100", **ONE_AT_A_TIME) as serving:
        wait_for(serving.ready, READY_S, "it is ready")
        hanging, queued = accepted(serving, HANGING), accepted(serving, RIGHT)
        wait_for(lambda: is_running(serving, hanging), READY_S, "the job runs")
        processes = serving.descendants()
        serving.process.send_signal(signal.SIGINT)
        told = f"waiting for 1 running job, at most 100 s. {AGAIN}"
        wait_for(lambda: told in serving.said, READY_S, "it says what it waits for")
        for path, body in (("/evaluate", evaluate(RIGHT)), ("/batch", {"jobs": [evaluate(RIGHT)]})):
            refused = httpx.post(serving.url + path, json=body, timeout=30)
            assert (refused.status_code, refused.json()["type"]) == (503, "urn:kernel-eval:problem:draining")
            assert int(refused.headers["Retry-After"]) > 0
        health = httpx.get(f"{serving.url}/health", timeout=30)
        assert health.status_code == 503 and "is being stopped" in health.json()["error"]
        assert is_running(serving, hanging)

        def asked_again() -> bool:
            serving.process.send_signal(signal.SIGINT)  # Within the first second it is still the first one.
            return "asked to stop again" in serving.said

        wait_for(asked_again, 10, "the second signal is heard")
        assert_nothing_left(serving, processes)
    with kept_records(serving.queue) as records:
        views = {view.job_id: view for view in records.list(state=State.QUEUED)}
    assert set(views) == {hanging, queued}
    (failed,) = views[hanging].failed_attempts
    assert failed.reason == "its worker was stopped before the job had ended"
    assert views[queued].attempt == 0
