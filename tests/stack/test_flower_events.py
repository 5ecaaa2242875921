"""What Flower shows of a job: the events of a real worker, read as Flower reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from celery import Celery
from redis import Redis

from tests.stack.serving import READY_S, serve, wait_for

SOURCE = "def kernel_fn(x):\n    return x * 2\n\ndef get_inputs():\n    return [torch.randn(8)]\n"
BODY = {"kernel": {"source_code": SOURCE, "kernel_type": "torch"}, "name": "doubling, v2", "budget": "quick"}
EVENTS_S = 60.0


def test_a_task_has_the_jobs_id_and_name_as_its_arguments(tmp_path: Path, redis_url: str, redis: Redis) -> None:
    app = Celery(broker=redis_url)
    state, job_ids = app.events.State(), []

    with serve(tmp_path, CELERY_BROKER_URL=redis_url) as serving, app.connection() as connection:
        wait_for(serving.ready, READY_S, "it is ready")

        def seen(event: dict[str, Any]) -> None:
            state.event(event)
            if not job_ids:  # The subscription began with the first event.
                job_ids.append(httpx.post(f"{serving.url}/evaluate", json=BODY, timeout=30).json()["job_id"])
            if event["type"] == "task-succeeded":  # A heartbeat may follow before the receiver looks.
                receiver.should_stop = True

        receiver = app.events.Receiver(connection, handlers={"*": seen})
        list(receiver.consume(limit=None, timeout=EVENTS_S))
    (task,) = state.tasks.values()
    assert (task.name, task.args) == ("evaluate", f"({job_ids[0]}, evaluate, torch, doubling, v2)")
    assert task.result == "'passed'"
