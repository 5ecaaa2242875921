"""POST /qualify: a comparison with further checks, unless the body chooses otherwise."""

from __future__ import annotations

from flask.testing import FlaskClient

from tasks.jobs.job_store import JobStore
from tests.api.payloads import DOUBLE, RELU, kernel
from tests.api.test_accepted import stored

BODY = {"ref_kernel": kernel(DOUBLE, "torch"), "custom_kernel": kernel(RELU, "torch")}


def test_the_defaults_are_those_of_a_merge(client: FlaskClient, records: JobStore) -> None:
    request = stored(client, records, "/qualify", BODY)
    assert (request.qualify, request.determinism, request.strictness) == (True, True, "robust")
    assert (request.baselines, request.operation) == (("eager", "compile"), "compare")


def test_the_body_has_the_last_word(client: FlaskClient, records: JobStore) -> None:
    chosen = {"determinism": False, "strictness": "task", "baselines": ["eager"]}
    request = stored(client, records, "/qualify", BODY | chosen)
    assert (request.qualify, request.determinism, request.strictness) == (True, False, "task")
    assert request.baselines == ("eager",)


def test_a_comparison_qualifies_nothing(client: FlaskClient, records: JobStore) -> None:
    request = stored(client, records, "/compare", BODY | {"qualify": True})
    assert not request.qualify and request.baselines == ("eager",)


def test_a_kernel_alone_is_refused(client: FlaskClient) -> None:
    answer = client.post("/qualify", json={"custom_kernel": kernel(RELU, "torch")})
    assert answer.status_code == 400 and "ref_kernel" in answer.get_json()["detail"]
