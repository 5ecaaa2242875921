"""Mixed jobs at once: each ends once, as it must; the counters add up; nothing is left running afterwards."""

from __future__ import annotations

import itertools
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from domain.job import TERMINAL
from tests.stack.serving import READY_S, assert_nothing_left, serve, wait_for

DEADLINE_S = 280.0
INPUTS = "\ndef get_inputs():\n    return [torch.randn(16, 8)]\n"


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
    few = [(name, *HANGS[name]) for name in itertools.repeat("hangs", max(count // 50, 1))]
    many = [(name, *KINDS[name]) for name in itertools.islice(itertools.cycle(KINDS), count - len(few))]
    jobs = few + many
    random.Random(7).shuffle(jobs)
    return jobs


@pytest.mark.slow  # Of fewer, with processes killed beside them, tests/chaos/test_campaign.py.
def test_every_one_of_many_mixed_jobs_ends_once_and_as_it_must(tmp_path: Path) -> None:
    count = 200
    jobs = mixed(count)
    with serve(tmp_path, MAX_WORKERS="3") as serving, httpx.Client(base_url=serving.url, timeout=60) as client:
        wait_for(serving.ready, READY_S, "it is ready")
        answer = client.post("/batch", json={"jobs": [body for _, body, _ in jobs]}).raise_for_status().json()
        ids = [entry["job_id"] for entry in answer["jobs"]]
        assert len(set(ids)) == count
        ended = _ended(client, ids)
        stats = client.get("/stats").json()
        processes = serving.descendants()
        serving.process.send_signal(signal.SIGINT)
        assert_nothing_left(serving, processes)
    for (name, _, verdict), job_id in zip(jobs, ids, strict=True):
        job = ended[job_id]
        assert (job["state"], job["result"]["verdict"]) == ("completed", verdict), (name, job["result"])
        assert job["timeline"][-1]["stage"] == "done"
        assert [step["stage"] for step in job["timeline"]].count("done") == 1
    wanted = Counter(verdict for _, _, verdict in jobs)
    assert {state: jobs for state, jobs in stats["job_stats"]["by_status"].items() if jobs} == {"completed": count}
    assert stats["jobs_completed"] == count and stats["jobs_failed"] == 0
    assert stats["profiling_metrics"]["correctness_passed"] == wanted["passed"]


def _ended(client: httpx.Client, ids: list[str]) -> dict[str, dict[str, Any]]:
    """Every job's last answer, once it is terminal."""
    ended: dict[str, dict[str, Any]] = {}

    def look() -> bool:
        for job_id in ids:
            if job_id not in ended:
                job = client.get(f"/job/{job_id}").json()
                if job["state"] in TERMINAL:
                    ended[job_id] = job
        return len(ended) == len(ids)

    wait_for(look, DEADLINE_S, f"all {len(ids)} jobs have ended")
    return ended
