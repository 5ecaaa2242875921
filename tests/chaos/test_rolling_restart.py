"""Every process is asked to stop and started again, one after the other, under load: nothing is lost."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from domain.job import State
from tests.chaos.load import RIGHT, SLOW_RUN
from tests.chaos.service import START_S, service
from tests.chaos.test_every_state import request
from tests.tasks.example_jobs import until


@pytest.mark.slow  # The campaign restarts a worker in this way too; here every process, and no job may notice.
def test_a_rolling_restart_costs_no_job_an_attempt(tmp_path: Path) -> None:
    with service(tmp_path, a=2, b=2) as (made, ledger):

        def submit(count: int) -> None:
            for number in range(count):
                ledger.enter(made.submit(request(SLOW_RUN if number % 2 else RIGHT)))

        def running_on(name: str) -> bool:
            return any(view.worker == f"{name}@test" for view in made.records.list(state=State.RUNNING))

        for name in ("a", "b"):
            submit(8)
            until(lambda name=name: running_on(name), START_S)
            process = made.processes[name]
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=START_S) == 0, made.log(name)[-3000:]
            del made.processes[name]
            made.start_worker(name, 2)
            until(lambda: made.lives("a", "b"), START_S)
        api = made.processes["api"]
        before = {process.pid for process in made.below("api")}
        api.send_signal(signal.SIGHUP)
        submit(4)
        until(lambda: not before & {process.pid for process in made.below("api")}, START_S)
        submit(4)
        until(lambda: all(made.view(job_id).state.terminal for job_id in ledger.ends), START_S)
        views = ledger.balance(made.url)
        assert {(view.state, view.attempt, len(view.failed_attempts)) for view in views.values()} == {
            (State.COMPLETED, 1, 0)
        }
        made.stop()
        made.assert_nothing_left()
