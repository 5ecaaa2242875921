"""The app under gunicorn, as it is served: waiting clients, latency, a clean stop."""

from __future__ import annotations

import gc
import os
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
from gunicorn.config import Config
from gunicorn.workers.gthread import ThreadWorker
from redis import Redis

from api import create_app
from api.auth.key_file import KeyFile
from api.http.accept_balancer import STEP_S, ServerProcess
from api.http.limits import PROCESS_SLOTS, PROCESSES, WAITERS
from api.http.long_poll import MAX_WAIT_S
from api.webhook_dispatcher import Dispatcher
from domain.access import Scope
from tasks.jobs.job_notifier import CHANNEL
from tasks.jobs.job_store import JobStore
from tests.api.payloads import README, RELU, kernel
from tests.api.routes.test_jobs import RESULT
from tests.conftest import die_with_parent, free_port

START_S = 30.0
WAIT_S = 120
"""How long a client waits for an answer, in s: far longer than a busy host takes, far shorter than MAX_WAIT_S."""
JSON = {"Content-Type": "application/json"}
BODY = {"kernel": kernel(RELU, "torch")}


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[bytes]
    url: str
    log: Path


@pytest.fixture
def server(redis: Redis, redis_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A parameter has further settings."""
    with serving(redis_url, tmp_path, getattr(request, "param", {})) as started:
        yield started


@contextmanager
def serving(redis_url: str, folder: Path, further: dict[str, str], under: Sequence[str] = ()) -> Iterator[Server]:
    """`under` is a command that runs it, such as prlimit."""
    port, log, home = free_port(), folder / "gunicorn.log", folder / "home"
    home.mkdir()
    environment = {**os.environ, "PORT": str(port), "CELERY_BROKER_URL": redis_url, "HOME": str(home)}
    environment |= {"API_KEYS_FILE": str(folder / "keys.json"), **further}
    environment.pop("XDG_RUNTIME_DIR", None)
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*under, sys.executable, "-m", "gunicorn", "-c", "python:api.gunicorn_config", "api:create_app()"],
            stdout=sink,
            stderr=sink,
            env=environment,
            preexec_fn=die_with_parent,
        )
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            httpx.get(f"{url}/health", timeout=5)
            break
        except httpx.TransportError:
            time.sleep(0.05)
    else:
        raise AssertionError(f"gunicorn does not answer:\n{log.read_text()}")
    try:
        yield Server(process, url, log)
    finally:
        process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=START_S) == 0, log.read_text()
    assert list(home.iterdir()) == []


def test_submit_and_wait(server: Server, redis: Redis) -> None:
    records = JobStore(redis, 60)
    # Woken by the end and not by its own time: the client gives up long before that.
    with httpx.Client(base_url=server.url, timeout=WAIT_S) as client, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.post, f"/evaluate?wait={MAX_WAIT_S}", json=BODY)
        while not records.queue_length():
            time.sleep(0.005)
        (job,) = records.list()
        claim = records.claim("gpu0@node")
        assert claim is not None
        records.complete(job.job_id, claim.attempt, RESULT)
        answer = waiting.result()
        assert answer.status_code == 200 and answer.json().items() >= RESULT.items()
        assert client.get(answer.headers["Location"]).json()["result"] == answer.json()


def test_a_chunked_body_and_its_cap(server: Server) -> None:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        good = [b'{"kernel": {"source_code": "', b"x" * 1000, b'", "kernel_type": "torch"}}']
        assert client.post("/evaluate", content=iter(good), headers=JSON).status_code == 202
        piece = b" " * (1 << 20)
        answer = client.post("/evaluate", content=(piece for _ in range(65)), headers=JSON)
        assert (answer.status_code, answer.headers["Content-Type"]) == (413, "application/problem+json")


def said(server: Server, request: bytes) -> bytes:
    """All that is answered until the connection is closed."""
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=10) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_what_is_not_read_is_no_next_request(server: Server) -> None:
    post = b"POST /evaluate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    smuggled = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for chunks in (b"zz\r\n", b"4\r\n{}  no end of a chunk\r\n", b"0\r\nno header\r\n\r\n"):
        answer = said(server, post + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + smuggled)
        assert answer.startswith(b"HTTP/1.1 400 ") and b"\r\nConnection: close\r\n" in answer, answer
        assert b"not chunked as HTTP/1.1 has it" in answer and b"HTTP/1.1 200" not in answer, answer
    answer = said(server, post + b"Content-Length: 99999999\r\n\r\n" + smuggled)
    assert answer.startswith(b"HTTP/1.1 413 ") and b"\r\nConnection: close\r\n" in answer, answer
    # What has been read leaves the connection to the next request.
    with httpx.Client(base_url=server.url) as client:
        refused = client.post("/evaluate", content=b"{}", headers=JSON)
        assert (refused.status_code, refused.headers["Connection"]) == (400, "keep-alive")


def test_a_body_declared_over_the_cap(server: Server) -> None:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for mib in (65, 300):
            answer = client.post("/evaluate", content=bytes(mib << 20), headers=JSON)
            assert (answer.status_code, answer.headers["Content-Type"]) == (413, "application/problem+json")
        assert client.post("/evaluate", json=BODY).status_code == 202


def test_jobs_are_accepted_while_many_wait(server: Server, redis: Redis) -> None:
    """How fast, `make bench` says."""
    with httpx.Client(base_url=server.url, timeout=30) as client, ThreadPoolExecutor(60) as pool:
        job_id = client.post("/evaluate", json=BODY).json()["job_id"]
        held = [pool.submit(httpx.get, f"{server.url}/job/{job_id}?wait=20", timeout=30) for _ in range(60)]
        for _ in range(40):
            assert client.post("/evaluate", json=README["triton"][1]).status_code == 202
        assert not any(answer.done() for answer in held)
        assert client.delete(f"/job/{job_id}").json()["state"] == "cancelled"
        assert {answer.result().json()["state"] for answer in held} == {"cancelled"}


def test_waiters_beyond_the_places_are_answered_at_once(server: Server) -> None:
    clients = PROCESSES * WAITERS + 40
    job_id = httpx.post(f"{server.url}/evaluate", json=BODY).json()["job_id"]
    # Threads that share a client's connections now and then close each other's; a context for each takes long to make.
    context = ssl.create_default_context()
    with ThreadPoolExecutor(clients) as pool:
        asked = {"timeout": 90, "verify": context}
        held = [pool.submit(httpx.get, f"{server.url}/job/{job_id}?wait=60", **asked) for _ in range(clients)]
        deadline = time.monotonic() + START_S
        while (crowded := sum(answer.done() for answer in held)) < 40 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert crowded >= 40
        assert httpx.get(f"{server.url}/health", timeout=START_S).status_code == 503
        httpx.delete(f"{server.url}/job/{job_id}", timeout=START_S)
        answers = [answer.result() for answer in held]
    assert {answer.status_code for answer in answers} == {200}, server.log.read_text()
    assert sum(answer.headers.get("Retry-After") == "5" for answer in answers) >= 40
    assert sum(answer.json()["state"] == "cancelled" for answer in answers) >= clients / 2


def test_the_connections_of_one_client_are_spread(server: Server) -> None:
    def connections() -> list[int]:
        """Of each process, with those to Redis; none while there are fewer processes than there are to be."""
        parent = server.process.pid
        pids = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return [psutil.Process(int(pid)).num_fds() for pid in pids] if len(pids) == PROCESSES else [0] * PROCESSES

    def gained() -> list[int]:
        """By each, of ten times as many as they are, which stay."""
        before = connections()
        for _ in range(10 * PROCESSES):
            client = kept.enter_context(httpx.Client(base_url=server.url, timeout=30, verify=context))
            assert client.get("/health").status_code == 503, "it has no worker"
        return [now - then for now, then in zip(connections(), before, strict=True)]

    context, deadline = ssl.create_default_context(), time.monotonic() + START_S
    with ExitStack() as kept:
        while not all(connections()) or min(gained()) < 2:
            assert time.monotonic() < deadline, "all processes take connections"
        rounds = [gained() for _ in range(4)]
    assert any(min(one) >= 8 for one in rounds), rounds


def test_who_is_gone_is_waited_for_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(self: ServerProcess, age: int) -> None:
        self.age, self.nr_conns = age, 0

    slept: list[float] = []
    monkeypatch.setattr(ThreadWorker, "__init__", made)
    monkeypatch.setattr(ThreadWorker, "accept", lambda self, listener: None)
    monkeypatch.setattr("api.http.accept_balancer.time.sleep", slept.append)
    monkeypatch.setattr(ServerProcess, "notify", lambda self: None)
    few, many = ServerProcess(1), ServerProcess(2)
    for age in range(
        3, 3 + PROCESS_SLOTS
    ):  # One after the other is started and dies; no slot of a living one is reused.
        ServerProcess(age).on_exit()
    many.nr_conns = 2
    many.accept("listener")
    assert slept == [2 * STEP_S], "another has none"
    few.accept("listener")
    few.on_exit()
    many.accept("listener")
    many.on_exit()
    assert slept == [2 * STEP_S]


@pytest.mark.parametrize("server", [{"GUNICORN_CMD_ARGS": "--timeout 10"}], indirect=True)
def test_a_process_that_hangs_while_it_starts_is_replaced(server: Server) -> None:
    def processes() -> set[psutil.Process]:
        return set(psutil.Process(server.process.pid).children())

    def until(condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}:\n{server.log.read_text()}"
            time.sleep(0.002)

    until(lambda: len(processes()) == PROCESSES, "all have been started")
    before = processes()
    next(iter(before)).kill()
    until(lambda: bool(processes() - before), "another has been started")
    (hanging,) = processes() - before
    hanging.suspend()
    assert hanging.num_threads() == 1, "it has started its threads already"
    until(lambda: not hanging.is_running(), "the hanging one has been ended")
    until(lambda: len(processes()) == PROCESSES, "there are as many as before")
    assert f"WORKER TIMEOUT (pid:{hanging.pid})" in server.log.read_text()


def test_a_stop_answers_who_waits(server: Server, redis: Redis) -> None:
    def listeners() -> int:
        return int(dict(redis.pubsub_numsub(CHANNEL))[CHANNEL.encode()])

    with ThreadPoolExecutor(1) as pool:
        job_id = httpx.post(f"{server.url}/evaluate", json=BODY).json()["job_id"]
        before = listeners()
        held = pool.submit(httpx.get, f"{server.url}/job/{job_id}?wait={MAX_WAIT_S}", timeout=WAIT_S)
        while listeners() == before:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        answer = held.result()
        assert (answer.status_code, answer.json()["state"]) == (200, "queued")
        assert server.process.wait(timeout=START_S) == 0


@pytest.mark.parametrize("server", [{"REQUIRE_API_KEYS": "on"}], indirect=True)
def test_a_key_costs_little_and_a_stranger_is_turned_away_before_his_body(
    server: Server, redis_url: str, tmp_path: Path
) -> None:
    keys = KeyFile(tmp_path / "keys.json", 60_000, 10_000)
    secret = keys.add("alice", list(Scope), {})
    with httpx.Client(base_url=server.url, timeout=30, headers={"Authorization": f"Bearer {secret}"}) as client:
        (tmp_path / "open").mkdir()
        with (
            serving(redis_url, tmp_path / "open", {"REQUIRE_API_KEYS": "off"}) as other,
            httpx.Client(base_url=other.url, timeout=30) as anybody,
        ):
            # In turn, as a busy host makes both slow.
            took = [(_submitted_s(client), _submitted_s(anybody)) for _ in range(100)]
        keyed, free = (statistics.median(each) for each in zip(*took, strict=True))
        assert keyed < 2 * free, (keyed, free)
        assert len(client.get("/jobs?limit=1000").json()["jobs"]) == 100
        keys.revoke("alice")
        # All processes, whichever answers.
        assert {client.get("/jobs").status_code for _ in range(20)} == {401}
        assert {httpx.get(f"{server.url}/jobs").status_code for _ in range(20)} == {401}
    answer = httpx.post(f"{server.url}/evaluate", content=bytes(8 << 20), timeout=30)
    assert (answer.status_code, answer.headers["Content-Type"]) == (401, "application/problem+json")


def _submitted_s(client: httpx.Client) -> float:
    began = time.perf_counter()
    assert client.post("/evaluate", json=README["triton"][1]).status_code == 202
    return time.perf_counter() - began


def test_every_process_tells_the_same_metrics(server: Server) -> None:
    for _ in range(3):
        assert httpx.post(f"{server.url}/evaluate", json=BODY, timeout=30).status_code == 202
    answers = [httpx.get(f"{server.url}/metrics", timeout=30).text for _ in range(12)]  # A connection each.
    told = [[line for line in answer.splitlines() if line.startswith("kernel_eval_jobs")] for answer in answers]
    assert 'kernel_eval_jobs_submitted_total{kernel_type="torch"} 3.0' in told[0]
    assert all(each == told[0] for each in told)


def test_what_is_loaded_is_never_looked_through_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    from api.gunicorn_config import post_worker_init  # It reads the settings when it is imported.

    monkeypatch.setattr(Dispatcher, "start", lambda self: None)
    before = gc.get_freeze_count()
    process = ServerProcess(0, os.getpid(), [], None, 60, Config(), None)
    process.wsgi = create_app()
    try:
        post_worker_init(process)
        assert gc.get_freeze_count() > before + 10_000
    finally:
        gc.unfreeze()
        process.on_exit()
        process.tmp.close()
