"""The OpenAPI document and its page."""

from __future__ import annotations

import re
from typing import Any

import pytest
from apiflask import APIFlask
from flask.testing import FlaskClient

from tests.api.payloads import RELU, Json, kernel

OPERATIONS = {
    ("post", "/evaluate"), ("post", "/compare"), ("post", "/batch"), ("post", "/"), ("get", "/job/{job_id}"),
    ("get", "/batch/{batch_id}"),
    ("delete", "/job/{job_id}"), ("get", "/jobs"), ("get", "/health"), ("get", "/stats"),
    ("post", "/admin/cleanup-jobs"), ("post", "/jobs/cancel"), ("get", "/"), ("get", "/job/{job_id}/report"),
    ("get", "/job/{job_id}/events"), ("get", "/metrics"), ("get", "/job/{job_id}/artifacts"),
    ("get", "/job/{job_id}/artifacts/{side}/{name}"),
}  # fmt: skip


def document(client: FlaskClient) -> Json:
    answer = client.get("/openapi.json")
    assert answer.status_code == 200
    spec: Json = answer.get_json()
    return spec


def test_every_operation_is_there(client: FlaskClient) -> None:
    spec = document(client)
    assert spec["openapi"] == "3.1.0"
    assert {
        (method, path) for path, item in spec["paths"].items() for method in item if method != "parameters"
    } == OPERATIONS
    submit = spec["paths"]["/evaluate"]["post"]
    assert {"200", "202", "400", "413", "415", "409", "500", "503"} <= set(submit["responses"])
    assert "application/problem+json" in submit["responses"]["400"]["content"]
    assert [parameter["name"] for parameter in submit["parameters"]] == ["wait", "Idempotency-Key"]


def test_every_reference_resolves_and_schemas_say_their_bounds(client: FlaskClient) -> None:
    spec = document(client)
    schemas = spec["components"]["schemas"]
    for reference in re.findall(r"#/components/schemas/(\w+)", str(spec)):
        assert reference in schemas
    trials = schemas["Evaluate"]["properties"]["num_trials"]
    assert (trials["minimum"], trials["maximum"]) == (1, 10_000)
    budget = schemas["Evaluate"]["properties"]["budget"]
    assert (budget["enum"], budget["default"]) == (["quick", "default", "precise"], "default")
    artifacts = schemas["Evaluate"]["properties"]["artifacts"]
    assert set(artifacts["items"]["enum"]) == {"ptx", "sass", "ttir", "ttgir", "llir"} and artifacts["maxItems"] == 5
    metrics = schemas["Compare"]["properties"]["device_metrics"]
    assert [shape["type"] for shape in metrics["oneOf"]] == ["boolean", "string", "array"]
    assert metrics["oneOf"][1]["enum"] == ["basic", "full"] and metrics["oneOf"][2]["maxItems"] == 32
    assert schemas["Evaluate"]["properties"]["sanitize"]["default"] is False
    assert schemas["Kernel"]["additionalProperties"] is False
    assert set(schemas["Kernel"]["properties"]["kernel_type"]["enum"]) >= {"torch", "triton", "cuda"}


def test_it_is_valid_openapi(app: APIFlask) -> None:
    schemathesis = pytest.importorskip("schemathesis", reason="a development tool that an offline GPU box lacks")
    schemathesis.openapi.from_wsgi("/openapi.json", app).validate()


def test_the_examples_are_accepted(client: FlaskClient) -> None:
    for path, item in document(client)["paths"].items():
        content: Any = item.get("post", {}).get("requestBody", {}).get("content", {})
        for example in content.get("application/json", {}).get("examples", {}).values():
            if "batch_id" in example["value"]:
                batch = client.post("/batch", json={"jobs": [{"kernel": kernel(RELU, "torch")}]}).get_json()
                example["value"]["batch_id"] = batch["batch_id"]
            answer = client.post(path, json=example["value"])
            assert answer.status_code in (200, 202), answer.get_data(as_text=True)
            assert answer.get_json().get("refused", 0) == 0
            assert "ignored" not in answer.get_json()


def test_the_page_asks_nothing_of_the_network(client: FlaskClient) -> None:
    page = client.get("/docs").get_data(as_text=True)
    links = re.findall(r"(?:src|href)=\"([^\"]+)\"", page)
    assert links
    assert "http" not in " ".join(links)
    for link in links:
        with client.get(link) as answer:
            assert answer.status_code == 200, link
    assert client.get("/docs/assets/../../etc/passwd").status_code == 404


def test_who_runs_no_scripts_is_shown_the_document(client: FlaskClient) -> None:
    page = client.get("/docs").get_data(as_text=True)
    (told,) = re.findall(r"<noscript>(.*?)</noscript>", page, re.DOTALL)
    assert "curl -s http://localhost/openapi.json" in told and page.index(told) < page.index("<script")
