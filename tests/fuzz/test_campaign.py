"""A hundred requests out of the OpenAPI document and of random contracts: what `make fuzz` does at length."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.service import service


def test_no_request_breaks_the_service(tmp_path: Path) -> None:
    pytest.importorskip("schemathesis", reason="a development tool that an offline GPU box lacks")
    from tests.fuzz.campaign import Fuzz

    with service(tmp_path, app="tasks.app", a=2) as (made, _):
        tally = Fuzz(made, number=80, seed=5, judged=3).run()
        made.stop()
        made.assert_nothing_left()
    print(tally)
    assert tally.log_lines == []
    assert tally.answers.total() >= 72
    assert tally.answers[202] and tally.answers[400]
