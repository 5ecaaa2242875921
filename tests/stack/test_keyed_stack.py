"""The stack with API keys, and a Redis behind a password and TLS: it judges, and no log has a source, key or secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("opentelemetry.instrumentation.flask", reason="an extra that an offline GPU box lacks")

from domain.paths import ROOT
from stack.child import Child
from stack.redis_server import RedisServer
from tests.otlp import Collector, Span, collector
from tests.stack.serving import READY_S, Serving, serve, wait_for
from tests.tls import tls_front

WORD = "xyzzy_plugh"
"""Stands in every source, and nowhere else."""

SOURCES = {
    "passed": f"def kernel_fn(x):\n    {WORD} = x * 2\n    return {WORD}\n",
    "runtime_error": f"def kernel_fn(x):\n    raise ValueError('{WORD}')\n",
    "compile_error": f"def kernel_fn(x:\n    {WORD}\n",
    "crashed": f"import os\ndef kernel_fn(x):\n    print('{WORD}', flush=True)\n    os.abort()\n",
}


@dataclass(frozen=True)
class Keyed:
    serving: Serving
    secrets: list[str]
    traces: Collector

    @property
    def key(self) -> str:
        return self.secrets[0]

    def ask(self, method: str, path: str, key: str | None = None, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key or self.key}"}
        return httpx.request(method, self.serving.url + path, headers=headers, timeout=120, **more)


def made(file: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "stack", "keys", "add", *arguments],
        cwd=ROOT,
        env={**os.environ, "API_KEYS_FILE": str(file)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[Keyed]:
    server, keys = RedisServer.on_free_port(tmp_path / "redis"), tmp_path / "keys.json"
    secrets = [made(keys, "alice", "--scope", "submit", "--scope", "read"), made(keys, "bob", "--scope", "read")]
    child = Child.start(server.program(dict(os.environ)))
    try:
        wait_for(server.answers, READY_S, "Redis answers")
        folder = tmp_path / "stack"
        folder.mkdir()
        with tls_front(tmp_path, server.port) as front, collector() as traces:
            url = f"rediss://:{server.password}@127.0.0.1:{front.port}/0?ssl_ca_certs={front.certificate}"
            given = {"CELERY_BROKER_URL": url, "API_KEYS_FILE": str(keys), "HOST": "0.0.0.0", "LOG_LEVEL": "DEBUG"}
            given["OTEL_EXPORTER_OTLP_ENDPOINT"] = traces.url
            with serve(folder, **given, GPU_DEVICE="cpu") as serving:
                yield Keyed(serving, [*secrets, server.password], traces)
    finally:
        child.kill()
        child.close()


def assert_one_trace(traces: Collector, job_id: str) -> None:
    """The request that submitted the job, its message and the worker's task are spans of one trace."""

    def sent() -> list[Span]:
        return [span for span in traces.spans if span.attributes.get("messaging.message.id") == f"{job_id}.1"]

    wait_for(lambda: len(sent()) == 2, 30, f"the spans of the message of job {job_id}")
    told = {span.name: span for span in sent()}
    message, task = told["apply_async/evaluate"], told["run/evaluate"]
    wait_for(lambda: message.parent in {span.span for span in traces.spans}, 30, f"the request of job {job_id}")
    (request,) = [span for span in traces.spans if span.span == message.parent]
    assert (request.name, request.parent, request.service) == ("POST /evaluate", "", "kernel-eval-api")
    assert (message.service, task.service, task.parent) == ("kernel-eval-api", "kernel-eval-worker", message.span)
    assert request.trace == message.trace == task.trace
    assert any(span.attributes.get("db.system") == "redis" for span in traces.spans if span.trace == request.trace)


def test_it_judges_for_who_has_a_key_and_tells_its_logs_nothing(keyed: Keyed) -> None:
    serving = keyed.serving
    wait_for(serving.ready, READY_S, "it is ready")
    judged: dict[str, tuple[str, str]] = {}
    for expected, source in SOURCES.items():
        body = {"kernel": {"source_code": source, "kernel_type": "torch"}, "num_trials": 10}
        answer = keyed.ask("POST", "/evaluate?wait=100", json=body)
        assert (answer.status_code, answer.json().get("verdict")) == (200, expected), answer.text
        judged[answer.json()["job_id"]] = (answer.headers["X-Request-Id"], expected)
    good = {"kernel": {"source_code": SOURCES["passed"], "kernel_type": "torch"}}
    # Refused at the door, in every way that has a body or a key in it.
    for path, body in (("/evaluate", {**good, WORD: 1, "num_trials": WORD}), ("/batch", {"jobs": [good, {"x": WORD}]})):
        assert keyed.ask("POST", path, json=body).status_code in (202, 400)
    assert keyed.ask("POST", "/evaluate", content=f'{{"{WORD}'.encode()).status_code in (400, 415)
    assert keyed.ask("POST", "/evaluate", key=keyed.secrets[1], json=good).status_code == 403
    assert keyed.ask("GET", "/jobs", key=keyed.key[:-1] + "g").status_code == 401
    job_id = keyed.ask("POST", "/evaluate", json=good).json()["job_id"]
    assert keyed.ask("GET", f"/job/{job_id}", key=keyed.secrets[1]).status_code == 404
    keyed.ask("DELETE", f"/job/{job_id}?wait=60")
    assert httpx.get(f"{serving.url}/health", timeout=30).json() == {"status": "healthy"}

    log = serving.log()
    assert "API keys are required" in log
    assert job_id in log, "the logs are those of the jobs"
    lines = [json.loads(line) for line in (serving.logs / "cuda_eval_server.log").read_text().splitlines()]
    for judged_id, (request_id, verdict) in judged.items():
        followed = [line for line in lines if line.get("job_id") == judged_id]
        (accepted,) = [line for line in followed if ": accepted, " in line["message"]]
        assert (accepted["process"], accepted["request_id"]) == ("api", request_id)
        (ended,) = [line for line in followed if line["message"].endswith(f"attempt 1: {verdict}")]
        assert ended["worker"].startswith("cpu0@") and ended["attempt"] == 1 and ended["stage"] != "queued"
        (begun,) = [line for line in followed if line["message"].endswith("attempt 1 begins")]
        stages = [line["stage"] for line in followed if line["message"].endswith(f": {line.get('stage')}")]
        assert stages[0] == "build" and ("time" in stages) == (verdict == "passed")
        of_celery = [line for line in lines if line.get("task_id") == begun["task_id"] and "job_id" not in line]
        assert any("succeeded" in line["message"] for line in of_celery)
        assert_one_trace(keyed.traces, judged_id)
    log += str(keyed.traces.spans)
    for secret in [*keyed.secrets, *(secret.rpartition("_")[2] for secret in keyed.secrets), keyed.key[:-1], WORD]:
        assert secret not in log
