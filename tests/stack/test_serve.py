"""`make serve` as its user has it: it comes up, it repairs itself, and Ctrl-C leaves nothing but logs and jobs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from redis import Redis

from domain.paths import ROOT
from tests.child_processes import command_line
from tests.conftest import free_port
from tests.stack.serving import READY_S, STOP_S, Serving, assert_nothing_left, serve, wait_for

HANGING = {
    "kernel": {"source_code": "def kernel_fn(x):\n    while True:\n        pass\n", "kernel_type": "torch"},
    "timeout": 60,
}


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    with serve(tmp_path) as started:
        yield started


def test_ctrl_c_in_the_middle_of_a_job_leaves_nothing_behind(serving: Serving) -> None:
    wait_for(serving.ready, READY_S, "it is ready")
    submitted = httpx.post(f"{serving.url}/evaluate", json=HANGING, timeout=30)
    assert submitted.status_code == 202, submitted.text
    job_id = submitted.json()["job_id"]
    wait_for(lambda: serving.job(job_id).get("state") == "running", READY_S, "the job runs")
    processes = serving.descendants()
    assert len(processes) > 4
    serving.process.send_signal(signal.SIGINT)
    serving.process.send_signal(signal.SIGINT)  # One that comes twice, by way of `make` too, is one.
    assert_nothing_left(serving, processes)
    assert "6 s (DRAIN_SECONDS) are over" in serving.said
    together = (serving.logs / "cuda_eval_server.log").read_text()
    said = {line["process"]: line["message"] for line in map(json.loads, together.splitlines()) if "job_id" in line}
    assert said["api"] == f"job {job_id}: accepted, evaluate torch"
    assert len(said) == 2, "the API and a worker"


def test_ctrl_c_before_it_is_ready_leaves_nothing_behind(serving: Serving) -> None:
    wait_for(lambda: (serving.logs / "redis.log").exists(), READY_S, "the first process speaks")
    processes = serving.descendants()
    serving.process.send_signal(signal.SIGINT)
    assert_nothing_left(serving, processes)


def test_a_killed_worker_and_a_killed_server_are_replaced(serving: Serving) -> None:
    wait_for(serving.ready, READY_S, "it is ready")
    for words in (["celery", "worker"], ["gunicorn"], ["valkey-server"]):
        found = [child for child in psutil.Process(serving.process.pid).children() if _says(child, words)]
        assert len(found) == 1, words
        found[0].kill()
        wait_for(lambda found=found: not found[0].is_running(), STOP_S, f"{words} has ended")
        wait_for(serving.healthy, READY_S, f"/health answers 200 again without the killed {words}")
    assert (serving.logs / "stack.log").read_text().count("it is started again") == 3


def _says(process: psutil.Process, words: list[str]) -> bool:
    line = " ".join(command_line(process))
    return all(word in line for word in words)


def test_a_redis_server_that_does_not_answer_is_said_at_once(tmp_path: Path) -> None:
    given = {"CELERY_BROKER_URL": f"redis://:secret@127.0.0.1:{free_port()}/0", "LOG_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "stack", "serve"],
        cwd=ROOT,
        env={**os.environ, "PORT": str(free_port()), **given},
        capture_output=True,
        text=True,
        timeout=STOP_S,
    )
    assert done.returncode == 1
    assert "no Redis server answers at CELERY_BROKER_URL" in done.stdout and "secret" not in done.stdout


def test_a_start_waits_for_a_redis_server_that_takes_no_writes(redis_url: str, redis: Redis, tmp_path: Path) -> None:
    """As after a failover, or while its disk is full."""
    redis.replicaof("127.0.0.1", "1")
    with serve(tmp_path, CELERY_BROKER_URL=redis_url) as serving:
        try:
            wait_for(
                lambda: "no writes" in getattr(serving.get("/health"), "text", ""), READY_S, "it says what is wrong"
            )
        finally:
            redis.replicaof("NO", "ONE")
        wait_for(serving.ready, READY_S, "it is ready")


def test_a_taken_port_is_said_at_once(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        environment = {**os.environ, "PORT": str(taken.getsockname()[1]), "LOG_DIR": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "main.py"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=STOP_S
        )
    assert done.returncode == 1
    assert "choose another with PORT=8001" in done.stdout


@pytest.mark.parametrize(
    ("name", "value"), [("HOST", "192.0.2.1"), ("LOG_DIR", "/proc/nosuch"), ("LEASE_DIR", "/dev/null")]
)
def test_a_place_that_cannot_be_had_is_named(tmp_path: Path, name: str, value: str) -> None:
    environment = {**os.environ, "PORT": str(free_port()), "LOG_DIR": str(tmp_path), name: value}
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=STOP_S
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert name in done.stdout.splitlines()[-1]


def test_a_file_of_keys_that_cannot_be_read_is_named_without_a_traceback(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text("{")
    keys.chmod(0o600)
    own = {"REQUIRE_API_KEYS": "on", "API_KEYS_FILE": str(keys), "PORT": str(free_port())}
    folders = {"LOG_DIR": str(tmp_path / "logs"), "STATE_DIR": str(tmp_path / "state")}
    environment = {**os.environ, **own, **folders}
    command = [sys.executable, "-m", "stack", "serve"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=STOP_S)
    assert done.returncode == 1 and "Traceback" not in done.stdout
    assert f"{keys} is no file of keys" in done.stdout.splitlines()[-2]


@pytest.mark.parametrize(
    ("command", "given", "told"),
    [
        (["main.py"], {"PORT": "many"}, 'Environment variable "PORT" invalid: Write a whole number'),
        (["-m", "stack", "serve"], {"PORT": "many"}, 'Environment variable "PORT" invalid: Write a whole number'),
        (["-m", "stack", "serve"], {"PORT": "99999"}, "less than or equal to 65535"),
        (["main.py", "--port", "99999"], {}, "--port must be between 1 and 65535, not 99999"),
        (["main.py"], {"LOG_LEVEL": "loud"}, "Must be one of: debug, info, warning, error, critical."),
    ],
)
def test_a_setting_that_does_not_parse_is_named(
    command: list[str], given: dict[str, str], told: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "LOG_DIR": str(tmp_path), **given},
        capture_output=True,
        text=True,
        timeout=STOP_S,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert told in line


@pytest.mark.parametrize("app", ["tasks.app", "tasks.worker.build_worker"])
def test_a_worker_of_its_own_names_it_too(app: str) -> None:
    command = [sys.executable, "-m", "celery", "--app", app, "worker"]
    environment = {**os.environ, "JOB_TTL": "1d"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=STOP_S)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert '"JOB_TTL" invalid: Write a whole number' in line


def test_the_demo_ends_as_expected(tmp_path: Path) -> None:
    own = ("CELERY_BROKER_URL", "STATE_DIR", "PORT")
    folders = {"LOG_DIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    environment = {name: value for name, value in os.environ.items() if name not in own} | folders
    done = subprocess.run(
        [sys.executable, "-m", "stack", "demo"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdicts as expected" in done.stdout
    assert not (tmp_path / "state").exists(), "its jobs are thrown away"
