"""A service whose server and broker are killed while `map` is at work: every submission still comes back."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from kernel_eval_client import Client, Submission, torch
from tests.child_processes import command_line
from tests.stack.serving import READY_S, serve, wait_for

MANY = 300


@pytest.mark.slow
def test_none_is_lost_when_the_server_is_killed_in_the_middle(tmp_path: Path) -> None:
    with serve(tmp_path, GPU_DEVICE="cpu", MAX_WORKERS="2") as serving:
        wait_for(serving.ready, READY_S, "it is ready")
        submissions = (Submission(torch(f"import nosuch_{n}"), label=f"{n}") for n in range(MANY))
        came: dict[int, str] = {}
        with Client(serving.url) as client:
            for finished in client.map(submissions, concurrency=32):
                assert finished.result is not None, finished.error
                assert f"nosuch_{finished.index}'" in str(finished.result.error), "its own answer, nobody else's"
                came[finished.index] = finished.result.job_id
                if len(came) in (MANY // 3, 2 * MANY // 3):
                    _kill(serving.process.pid, "gunicorn" if len(came) == MANY // 3 else "valkey-server")
    assert sorted(came) == list(range(MANY))
    assert len(set(came.values())) == MANY


def _kill(parent: int, word: str) -> None:
    found = [child for child in psutil.Process(parent).children() if any(word in part for part in command_line(child))]
    assert found, f"no {word} to kill"
    for process in found:
        process.kill()
