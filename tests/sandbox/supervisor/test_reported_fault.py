"""A runner's report of a fault: its word is no verdict that only the referee gives."""

from __future__ import annotations

import pytest

from domain.result import Lack, Status
from sandbox.supervisor.reported_fault import parse_fault


@pytest.mark.parametrize("status", ["passed", "reference_failed"])
def test_a_status_that_only_the_referee_gives_is_a_crash(status: str) -> None:
    told = parse_fault({"op": "fault", "status": status, "message": "very good", "log": "", "lacks": "part"})
    assert told.status is Status.CRASHED and told.message == "very good" and told.lacks is None


def test_only_an_unsupported_kernel_lacks_something_of_its_worker() -> None:
    fault = {"op": "fault", "message": "no nvcc", "log": "", "lacks": "part"}
    assert parse_fault(fault | {"status": "unsupported"}).lacks is Lack.PART
    assert parse_fault(fault | {"status": "wrong_result"}).lacks is None
