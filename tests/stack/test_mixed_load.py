"""200 mixed jobs at once: each ends once, as it must; the counters add up; nothing is left running afterwards."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from rich.console import Console

from domain.job import TERMINAL
from domain.settings import settings
from stack.redis_server import free_port
from stack.running import Stack, running

JOBS = 200
DEADLINE_S = 280.0
INPUTS = "\ndef get_inputs():\n    return [torch.randn(16, 8)]\n"
MARK = "MIXED_LOAD_MARK"


def evaluate(source: str, **more: Any) -> dict[str, Any]:
    return {
        "operation": "evaluate",
        "kernel": {"source_code": source, "kernel_type": "torch"},
        "num_trials": 1,
        "timeout": 60,
    } | more


def compare(expression: str) -> dict[str, Any]:
    model = "class {}(nn.Module):\n    def forward(self, x):\n        return {}\n"
    return {
        "operation": "compare",
        "ref_kernel": {"source_code": model.format("Model", "torch.softmax(x, -1)") + INPUTS, "kernel_type": "torch"},
        "custom_kernel": {"source_code": model.format("ModelNew", expression), "kernel_type": "torch"},
        "num_trials": 1,
        "timeout": 60,
    }


KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "right alone": (evaluate("def kernel_fn(x):\n    return x * 2" + INPUTS), "passed"),
    "right beside a reference": (compare("x.softmax(-1)"), "passed"),
    "wrong": (compare("x"), "wrong_result"),
    "does not compile": (evaluate("def kernel_fn(x:"), "compile_error"),
    "raises": (evaluate("def kernel_fn(x):\n    raise ValueError" + INPUTS), "runtime_error"),
    "segfault": (evaluate("import ctypes\ndef kernel_fn(x):\n    ctypes.string_at(0)" + INPUTS), "crashed"),
    "exits": (evaluate("import os\nos._exit(0)"), "crashed"),
    "too large": (evaluate("def kernel_fn(x):\n    return torch.empty(1 << 60)" + INPUTS), "out_of_memory"),
}
HANGS = {"hangs": (evaluate("def kernel_fn(x):\n    while True: pass" + INPUTS, timeout=5), "timeout")}


def mixed(count: int) -> list[tuple[str, dict[str, Any], str]]:
    """That many jobs, every kind about as often, a few that hang; in a seeded order."""
    few = [(name, *HANGS[name]) for name in itertools.repeat("hangs", 4)]
    many = [(name, *KINDS[name]) for name in itertools.islice(itertools.cycle(KINDS), count - len(few))]
    jobs = few + many
    random.Random(7).shuffle(jobs)
    return jobs


@pytest.mark.slow
def test_every_one_of_200_mixed_jobs_ends_once_and_as_it_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis_url: None
) -> None:
    del redis_url  # only so that this process's settings are its own again afterwards
    monkeypatch.setenv(MARK, str(os.getpid()))
    monkeypatch.delenv("CELERY_BROKER_URL")
    monkeypatch.delenv("STATE_DIR")
    settings.cache_clear()
    chosen = dataclasses.replace(settings(), port=free_port(), max_workers=3, log_dir=tmp_path / "logs")
    jobs = mixed(JOBS)
    with running(chosen, Console(quiet=True)) as stack, httpx.Client(base_url=stack.url, timeout=60) as client:
        answer = client.post("/batch", json={"jobs": [body for _, body, _ in jobs]}).raise_for_status().json()
        ids = [entry["job_id"] for entry in answer["jobs"]]
        assert len(set(ids)) == JOBS
        ended = _ended(stack, client, ids)
        stats = client.get("/stats").json()
        assert [process for process in psutil.process_iter() if _is_of_the_stack(process)]
    for (name, _, verdict), job_id in zip(jobs, ids, strict=True):
        job = ended[job_id]
        assert (job["state"], job["result"]["verdict"]) == ("completed", verdict), (name, job["result"])
        assert job["timeline"][-1]["stage"] == "done"
        assert [step["stage"] for step in job["timeline"]].count("done") == 1
    wanted = Counter(verdict for _, _, verdict in jobs)
    assert {state: count for state, count in stats["job_stats"]["by_status"].items() if count} == {"completed": JOBS}
    assert stats["jobs_completed"] == JOBS and stats["jobs_failed"] == 0
    assert stats["profiling_metrics"]["correctness_passed"] == wanted["passed"]
    assert not [process for process in psutil.process_iter() if _is_of_the_stack(process)]
    settings.cache_clear()


def _ended(stack: Stack, client: httpx.Client, ids: list[str]) -> dict[str, dict[str, Any]]:
    """Every job's last answer, once it is terminal."""
    ended: dict[str, dict[str, Any]] = {}
    deadline = time.monotonic() + DEADLINE_S
    while len(ended) < len(ids):
        assert time.monotonic() < deadline, f"{len(ended)} of {len(ids)} ended within {DEADLINE_S} s"
        stack.tick(0.5)
        for job_id in ids:
            if job_id not in ended:
                job = client.get(f"/job/{job_id}").json()
                if job["state"] not in TERMINAL:
                    continue
                ended[job_id] = job
    return ended


def _is_of_the_stack(process: psutil.Process) -> bool:
    try:
        return process.pid != os.getpid() and process.environ().get(MARK) == str(os.getpid())
    except psutil.Error:
        return False
