"""On a card: a worker with a container's rights judges every example of the demo, and an extension of C++."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis import Redis

from stack.example import every_example
from tests.rights.host import interpreter, require, writable_folder
from tests.rights.rights_sets import COMPOSE, WORKER_USER, Rights
from tests.rights.worker_run import AGAIN, EXTENSION, api, worked


@pytest.mark.gpu
@pytest.mark.parametrize("rights", [COMPOSE, WORKER_USER], ids=lambda rights: rights.name)
def test_a_worker_with_a_containers_rights_judges_on_a_card(rights: Rights, redis_url: str, tmp_path: Path) -> None:
    require(rights)
    sent = [*every_example(), EXTENSION]
    with writable_folder(rights) as folder, api(redis_url, tmp_path) as client, Redis.from_url(redis_url) as redis:
        redis.flushall()
        command = interpreter(rights, folder)
        done = worked(rights, command, folder, tmp_path / "log", redis, client, device="0", sent=sent)
    wrong = {trial.example.name: (trial.got, trial.detail) for trial in done.jobs if not trial.as_expected}
    assert not wrong, done.log[-6000:]
    assert {trial.job["attempt"] for trial in done.jobs if trial.job is not None} == {1}
    assert [trial.result["kernel_exec_result"]["build"]["compile_cache"] for trial in done.again] == ["hit"] * len(
        AGAIN
    )
    assert (done.exit_status, done.left) == (0, [])
