"""A node of several cards: one command finds them and starts a worker for each, and all are busy, on their own card."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from domain.flags.codes import FlagCode
from domain.job import TERMINAL
from stack.devices import Gpu, installed
from tests.stack.serving import READY_S, Serving, serve, wait_for

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]

JOBS = 24
DONE_S = 240.0
SOFTMAX = (
    "def kernel_fn(x):\n    return torch.softmax(x, -1)\ndef get_inputs():\n    return [torch.randn({rows}, 1024)]\n"
)


@pytest.fixture
def cards() -> list[Gpu]:
    found = list(installed())
    if len(found) < 2:
        pytest.skip("needs a node of several GPUs")
    return found


def figures(serving: Serving, name: str, label: str) -> dict[str, float]:
    """The figures of one metric by one of its labels."""
    families = text_string_to_metric_families(httpx.get(serving.url + "/metrics", timeout=30).text)
    return {each.labels[label]: each.value for family in families for each in family.samples if each.name == name}


def with_a_worker(serving: Serving) -> set[str]:
    """The cards that a worker has said are his."""
    return {uuid for uuid, one in figures(serving, "kernel_eval_worker_info", "gpu_uuid").items() if one}


def ended(serving: Serving, job_ids: list[str]) -> list[dict[str, Any]]:
    found = [serving.job(job_id) for job_id in job_ids]
    return [job for job in found if job.get("state") in TERMINAL]


def test_each_card_has_a_worker_and_all_are_busy(tmp_path: Path, cards: list[Gpu]) -> None:
    bodies = [
        {
            "operation": "evaluate",
            "kernel": {"source_code": SOFTMAX.format(rows=1024 + number), "kernel_type": "torch"},
            "budget": "quick",
        }
        for number in range(JOBS * len(cards) // 2)
    ]
    with serve(tmp_path) as serving:
        wait_for(serving.ready, READY_S, "the service")
        uuids = {card.uuid for card in cards}
        # The service is ready with the first of its workers.
        wait_for(lambda: with_a_worker(serving) == uuids, READY_S, "a worker on each card, and on no other")
        answer = httpx.post(f"{serving.url}/batch", json={"jobs": bodies}, timeout=60).raise_for_status().json()
        job_ids = [job["job_id"] for job in answer["jobs"]]
        wait_for(lambda: len(ended(serving, job_ids)) == len(job_ids), DONE_S, "the jobs' end")
        jobs = ended(serving, job_ids)
        held = figures(serving, "kernel_eval_device_held_seconds_total", "worker")
        up = figures(serving, "kernel_eval_gpu_up", "gpu_uuid")
    assert Counter(job["result"]["verdict"] for job in jobs) == {"passed": len(bodies)}
    taken_for_others = [job["job_id"] for job in jobs if FlagCode.OTHER_GPU_PROCESSES in json.dumps(job["result"])]
    assert not taken_for_others, "a process of this service was taken for another's"
    by_card = Counter(job["result"]["environment"]["gpu_id"] for job in jobs)
    print(f"jobs by card: {dict(by_card)}; seconds each worker held its own: {held}; cards that answer: {up}")
    assert up == dict.fromkeys(uuids, 1.0)
    assert set(by_card) == {card.index for card in cards}
    assert min(by_card.values()) >= JOBS // 4
    assert len(held) == len(cards)
    assert all(seconds > 0 for seconds in held.values())
