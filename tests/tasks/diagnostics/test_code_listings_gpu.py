"""The code of kernels that ran on a GPU: of every type, also what Triton compiled at a call, in its runner's folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from domain.listing import Form, Listing, NoListing, unpack
from domain.request import Request
from domain.result import Outcome, Status
from tasks.evaluation.pipeline import run
from tests.own_worker import own_worker
from tests.tasks.evaluation.test_pipeline_gpu import REFERENCE, variant

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def worker() -> Iterator[Any]:
    with own_worker() as opened:
        assert opened.target.is_cuda
        yield opened


def judged(worker: Any, name: str, **more: Any) -> Outcome:
    wire = {"kernel": variant(name, ""), "reference": REFERENCE, "num_trials": 6, "timeout": 120} | more
    found = run(Request.from_wire(wire), worker).outcome
    assert found.status is Status.PASSED, found
    return found


def texts(outcome: Outcome) -> dict[Form, str]:
    return {one.format: unpack(one.packed).decode() for one in outcome.listings or [] if isinstance(one, Listing)}


@pytest.mark.parametrize("name", ["cuda", "torch_cuda", "triton", "multi_kernel"])
def test_what_ran_can_be_read(worker: Any, name: str) -> None:
    found = judged(worker, name, artifacts=["ptx", "sass"])
    read = texts(found)
    assert set(read) == {Form.PTX, Form.SASS}, found.listings
    assert "axpy" in read[Form.PTX] and ".entry" in read[Form.PTX]
    assert "axpy" in read[Form.SASS] and "LDG" in read[Form.SASS] and "EXIT" in read[Form.SASS]
    worker.teardown.join()
    assert not [path for path in worker.folder.iterdir() if path.name.startswith("job-")]


def test_triton_launched_from_python_has_its_stages_and_its_figures(worker: Any) -> None:
    found = judged(worker, "multi_kernel", artifacts=["ttir", "ttgir", "llir"])
    assert set(texts(found)) == {Form.TTIR, Form.TTGIR, Form.LLIR}, found.listings
    (code,) = [one for one in found.build["kernels"] if one["name"] == "axpy"]
    assert code["registers"] > 0 and 0 < code["occupancy"] <= 1 and code["num_warps"] == 4
    # The figures are told unasked, too.
    again = judged(worker, "multi_kernel")
    assert again.listings is None and again.build["kernels"] == found.build["kernels"]


def test_a_library_has_no_code_of_its_own_to_read(worker: Any) -> None:
    found = judged(worker, "torch", artifacts=["sass"])
    assert [type(one) for one in found.listings or []] == [NoListing]
