"""No body, whatever it holds, makes the service fail: it is accepted or it is refused with a problem document."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.payloads import LEGACY, README, TEST_DATA, Json

BODIES = [*README.values(), *(("/compare", body) for body in TEST_DATA.values()), ("/", LEGACY)]
ODD = st.sampled_from(
    [None, True, False, 0, -1, 1, 2.5, 2**63, -(2**70), 10**400, 1e300, "", "7", "x" * 300, "\u0000", "\ud800", "é", [],
     [[]], [1, 2, 3, 4], {}, {"x": {}}, {"": None}, "cdiv(n, 0)", "(" * 200, "randn", "tensor", "AAAA", "zlib"]
)  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
)
FUZZ = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def check(client: FlaskClient, path: str, raw: bytes) -> None:
    answer = client.post(path, data=raw, content_type="application/json")
    assert answer.status_code in (202, 400), answer.get_data(as_text=True)
    body = json.loads(answer.get_data(), parse_constant=pytest.fail)
    if answer.status_code == 400:
        assert answer.content_type == "application/problem+json"
        assert body["error"]
        assert body["errors"]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to every value inside."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


def changed(body: Json, path: tuple[Any, ...], value: Any, remove: bool) -> Json:
    body = copy.deepcopy(body)
    parent: Any = body
    for step in path[:-1]:
        parent = parent[step]
    if remove:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return body


@FUZZ
@given(data=st.data())
def test_good_bodies_with_one_thing_changed(client: FlaskClient, data: st.DataObject) -> None:
    path, body = data.draw(st.sampled_from(BODIES))
    for _ in range(data.draw(st.integers(1, 3))):
        if found := places(body):
            body = changed(body, data.draw(st.sampled_from(found)), data.draw(ODD | JSON), data.draw(st.booleans()))
    check(client, path, json.dumps(body).encode())
    check(client, "/batch", json.dumps({"jobs": [body, body]}).encode())


@FUZZ
@given(path=st.sampled_from(["/evaluate", "/compare", "/", "/batch"]), value=JSON, wrap=st.booleans())
def test_any_json(client: FlaskClient, path: str, value: Any, wrap: bool) -> None:
    keys = ("kernel", "ref_kernel", "custom_kernel", "ref_code", "custom_code", "jobs", "num_trials", "operation")
    body = dict.fromkeys(keys, value) if wrap else value
    check(client, path, json.dumps(body).encode())


@FUZZ
@given(path=st.sampled_from(["/evaluate", "/compare", "/batch"]), raw=st.binary(max_size=200))
def test_any_bytes(client: FlaskClient, path: str, raw: bytes) -> None:
    check(client, path, raw)
    check(client, path, b'{"kernel": "' + raw + b'"}')


@FUZZ
@given(
    method=st.sampled_from(["GET", "DELETE"]),
    job_id=st.text(min_size=1, max_size=60),
    query=st.dictionaries(st.sampled_from(["wait", "limit", "cursor", "state", "batch_id"]), st.text(max_size=20)),
)
def test_any_query(client: FlaskClient, method: str, job_id: str, query: dict[str, str]) -> None:
    from urllib.parse import quote

    segment = quote(job_id, safe="", errors="replace")
    answer = client.open(f"/job/{segment}", method=method, query_string=query)
    assert answer.status_code in (302, 308, 400, 404, 405)
    listed = client.get("/jobs", query_string=query).status_code
    assert listed in (200, 400) or (listed == 404 and query["batch_id"])
