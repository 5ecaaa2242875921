"""Requests on the wire: what was asked for, and which of them are the same work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.device_metrics import CounterRequest, Level
from domain.inputs import Strictness
from domain.kernel import Kernel, KernelType
from domain.request import Request

PLAIN = Request(kernel=Kernel("class Model: ...", KernelType.TORCH))
ASKED = [
    PLAIN,
    replace(PLAIN, device_metrics=CounterRequest()),
    replace(PLAIN, device_metrics=CounterRequest(Level.FULL)),
    replace(PLAIN, device_metrics=CounterRequest(metrics=("a.max", "b__c.sum"))),
    replace(PLAIN, sanitize=True),
    replace(PLAIN, strictness=Strictness.ROBUST),
]


@pytest.mark.parametrize("request_", ASKED)
def test_what_is_asked_for_comes_back(request_: Request) -> None:
    assert Request.from_wire(request_.to_wire()) == request_


def test_each_is_other_work() -> None:
    assert len({request.work for request in ASKED}) == len(ASKED)


def test_what_is_looked_into_takes_longer() -> None:
    kinds = [request.kind for request in ASKED]
    assert len(set(kinds)) == 4, "metrics by name are read with the others"
    assert kinds[1] == kinds[3]


def test_a_record_of_a_version_with_fewer_or_other_fields_is_read() -> None:
    wire = PLAIN.to_wire() | {"invented": 1, "device_metrics": None}
    del wire["sanitize"], wire["strictness"]
    assert Request.from_wire(wire) == PLAIN


def test_a_reference_is_built_as_one_and_is_the_same_kernel() -> None:
    reference, candidate = replace(PLAIN, reference=PLAIN.kernel).kernels.values()
    assert reference.is_reference and not candidate.is_reference
    assert reference.digest == candidate.digest and reference.to_wire() != candidate.to_wire()
    assert Kernel.from_wire(reference.to_wire()) == reference
