"""The stop signal in the client: the result, its row, rewards, and what an agent is told."""

from __future__ import annotations

from typing import Any

import pytest

from domain.speed.headroom import Basis
from kernel_eval_client import Result
from kernel_eval_client.rewards import Shaping
from tests.client.test_rewards import FAST, judged

UNKNOWN = {"ratio": None, "bound": None, "basis": None, "unavailable": "rates_unknown"}


def at(ratio: float, basis: Basis = Basis.BYTES_AND_OPERATIONS) -> Result:
    return with_headroom({"ratio": ratio, "bound": "memory", "basis": basis.value, "unavailable": None})


def with_headroom(wire: Any) -> Result:
    body = dict(judged(speedup=FAST).raw)
    kernel = {**body["kernel_exec_result"], "headroom": wire}
    return Result.from_dict({**body, "kernel_exec_result": kernel, "ref_result": kernel})


def test_rows_and_rewards_have_the_ratio() -> None:
    found = at(3.2)
    assert (
        found.headroom.ratio == found.to_dict()["headroom"] == Shaping().of_result(found).metrics()["headroom"] == 3.2
    )
    assert "bytes alone" in str(at(3.2, Basis.BYTES).headroom)


@pytest.mark.parametrize("wire", [None, UNKNOWN, "3", {"ratio": "much"}])
def test_without_one_there_is_no_number(wire: Any) -> None:
    found = with_headroom(wire)
    assert found.headroom.ratio is None and not found.headroom.is_near
    assert Shaping().of_result(found).metrics()["headroom"] is None


def test_an_agent_is_told_how_much_is_left() -> None:
    brief = pytest.importorskip("kernel_eval_client.agents.brief", reason="an extra of the client")
    near, far = brief.of_result(at(1.1)), brief.of_result(at(3.2))
    assert "headroom: 1.1 times the least time of its bytes and operations" in near
    assert near.count("headroom: ") == far.count("headroom: ") == 1
    assert "headroom" not in brief.of_result(with_headroom(UNKNOWN))
