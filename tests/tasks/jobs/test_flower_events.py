"""What Flower is told: through Celery's own receiver and state, as Flower has it."""

from __future__ import annotations

import time
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from celery.events.state import State as Seen
from redis import Redis

from domain.job import Stage
from domain.kernel import Kernel, KernelType
from domain.request import Request
from tasks.app import app
from tasks.jobs.flower_events import StageEventSender, kernel_name, label
from tasks.jobs.job_queue import Claim
from tasks.jobs.submit import publish
from tests.conftest import free_port
from tests.tasks.broker import published_to
from tests.tasks.example_jobs import EVALUATE, until

CLAIM = Claim("0a1b2c3d-1", 2, EVALUATE)


def test_a_stage_becomes_the_tasks_state(redis: Redis) -> None:
    task: Any = SimpleNamespace(request=SimpleNamespace(id="j.1", hostname="gpu0@node"))
    seen = Seen()
    events = StageEventSender()
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": seen.event})
        with receiver.consumer_context(wakeup=False) as (listening, _, _):
            for stage in (Stage.BUILD, Stage.WAIT_FOR_DEVICE, Stage.TIME):
                deadline = time.monotonic() + 20
                while (known := seen.tasks.get("j.1")) is None or known.state != stage.value.upper():
                    # Again and again: who listens has subscribed some time after it began to.
                    events.report(task, CLAIM, stage)
                    with suppress(TimeoutError):
                        listening.drain_events(timeout=0.1)
                    assert time.monotonic() < deadline
                assert (known.worker.hostname, known.args) == ("gpu0@node", "torch evaluate 0a1b2c3d.2")


def test_a_broker_that_is_away_holds_nobody_up(redis: Redis) -> None:
    task: Any = SimpleNamespace(request=SimpleNamespace(id="j.1", hostname="gpu0@node"))
    with published_to(f"redis://127.0.0.1:{free_port()}/0"):
        events = StageEventSender()
        began = time.monotonic()
        for _ in range(1000):
            events.report(task, CLAIM, Stage.BUILD)
        assert time.monotonic() - began < 5
        until(lambda: events._queue.qsize() < 32)


def test_a_message_shows_the_kernel_and_no_source(redis: Redis) -> None:
    kernel = Kernel("class Model: ...", KernelType.TRITON, metadata={"kernel_name": "softmax_rows"})
    publish("0a1b2c3d-1", Request(kernel))
    raw = redis.lindex("evaluate", 0)
    assert b"softmax_rows triton evaluate 0a1b2c3d.1" in raw and b"class Model" not in raw
    assert label("0a1b2c3d-1", 2) == "0a1b2c3d.2"


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ({"name": "gemm", "kernel_name": "other"}, "gemm"),
        ({"kernel_name": "scan<float, 4>", "entry_point": "forward"}, "forward"),
        ({"kernel_name": "ns::scan<float>"}, "ns::scan<float>"),
        ({"name": "import os; os.abort()"}, None),
        ({"name": "x" * 61}, None),
        ({"name": 3}, None),
        ({}, None),
    ],
)
def test_only_a_plain_word_is_a_name(metadata: dict[str, Any], name: str | None) -> None:
    assert kernel_name(Kernel("", KernelType.CUDA, metadata=metadata)) == name
