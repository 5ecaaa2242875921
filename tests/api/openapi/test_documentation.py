"""The OpenAPI document and its page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from apiflask import APIFlask
from flask.testing import FlaskClient

from api.webhook_dispatcher import message
from domain.flags.codes import FlagCode
from tasks.jobs.job_store import JobStore
from tests.api import results
from tests.api.payloads import RELU, Json, kernel
from tests.api.routes.test_jobs import claimed

OPERATIONS = {
    ("post", "/evaluate"), ("post", "/compare"), ("post", "/qualify"), ("post", "/batch"), ("post", "/"),
    ("get", "/job/{job_id}"),
    ("get", "/batch/{batch_id}"), ("get", "/side-by-side"), ("get", "/kernel"), ("get", "/suite"),
    ("delete", "/job/{job_id}"),
    ("post", "/job/{job_id}/confirm"), ("get", "/jobs"), ("get", "/health"), ("get", "/stats"),
    ("post", "/admin/cleanup-jobs"), ("post", "/jobs/cancel"), ("get", "/"), ("get", "/job/{job_id}/report"),
    ("get", "/job/{job_id}/events"), ("get", "/metrics"), ("get", "/job/{job_id}/artifacts"),
    ("get", "/job/{job_id}/artifacts/{side}/{name}"),
    ("get", "/job/{job_id}/source"), ("post", "/job/{job_id}/again"),
}  # fmt: skip


RENAMED = {
    "told", "correct_so_far", "trusted_ms", "launch_shift_us", "nulls_known", "stopped_by", "left_out", "process_ms",
    "precision", "no_speedup", "where", "resembles", "judged", "inputs_left_alone", "known_beforehand",
    "fresh_sets_equal", "compiled_late", "kernels_left_out", "findings_left_out", "errors_left_out", "says", "asked",
    "card", "card_errors", "of_card", "lowered_ms", "stopping", "ended", "streams_apart", "shipped", "cache_shipped",
    "time_ms", "metrics_refused", "given_up", "form", "blocks_by",
}  # fmt: skip
"""Former names of fields and of their values, none of which a schema, an example or a description has any more."""


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
    tags = [tag["name"] for tag in spec["tags"]]
    operations = [item[method] for item in spec["paths"].values() for method in item if method != "parameters"]
    assert {name for operation in operations for name in operation["tags"]} == set(tags) and len(tags) == 3
    submit = spec["paths"]["/evaluate"]["post"]
    assert {"200", "202", "400", "413", "415", "409", "500", "503"} <= set(submit["responses"])
    assert "application/problem+json" in submit["responses"]["400"]["content"]
    assert [parameter["name"] for parameter in submit["parameters"]] == ["wait", "Idempotency-Key"]


def test_flags_are_documented_with_every_code(client: FlaskClient) -> None:
    schemas = document(client)["components"]["schemas"]
    assert schemas["Result"]["properties"]["flags"]["items"] == {"$ref": "#/components/schemas/Flag"}
    assert schemas["Flag"]["properties"]["code"]["enum"] == [str(code) for code in FlagCode]
    assert set(schemas["Flag"]["required"]) == {"code", "message", "data", "kernel"}


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


def schemas_in(part: Any) -> Iterator[Any]:
    """Every schema of the document: of a component, a parameter, a body and a response."""
    if isinstance(part, dict):
        if isinstance(part.get("schema"), dict):
            yield part["schema"]
        for name, value in part.items():
            if name not in ("example", "examples", "schema"):
                yield from schemas_in(value)
    elif isinstance(part, list):
        for value in part:
            yield from schemas_in(value)


def test_every_schema_is_valid_and_so_are_its_defaults(client: FlaskClient) -> None:
    """What the validation above leaves out: a type that is listed twice, and the rules that span several operations."""
    jsonschema = pytest.importorskip("jsonschema", reason="a development tool that an offline GPU box lacks")
    spec = document(client)
    components = spec["components"]["schemas"]
    schemas = [*components.values(), *schemas_in(spec["paths"]), *schemas_in(spec["webhooks"])]
    assert len(schemas) > 150
    for schema in schemas:
        jsonschema.Draft202012Validator.check_schema(schema)
        for name, field in schema.get("properties", {}).items():
            if "default" in field:
                whole = {**field, "components": spec["components"]}
                jsonschema.Draft202012Validator(whole).validate(field["default"]), name
    operations = [
        (path, operation)
        for path, item in spec["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    ]
    ids = [operation["operationId"] for _, operation in operations]
    assert len(ids) == len(set(ids))
    for path, operation in operations:
        parameters = operation.get("parameters", []) + spec["paths"][path].get("parameters", [])
        described = {each["name"] for each in parameters if each["in"] == "path"}
        assert described == set(re.findall(r"{(\w+)}", path)), path


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


def shown(spec: Json) -> Iterator[tuple[str, Json, Any]]:
    """Every JSON body that the document has a schema for and that somebody receives: where, its schema, its example."""
    for path, item in spec["paths"].items():
        for method, operation in item.items():
            for status, answer in operation.get("responses", {}).items():
                for kind, content in answer.get("content", {}).items():
                    if "json" in kind:
                        yield f"{method} {path} {status}", content["schema"], content.get("example")
    (webhook,) = spec["webhooks"].values()
    content = webhook["post"]["requestBody"]["content"]["application/json"]
    yield "webhook", content["schema"], content["example"]


def test_every_answer_has_an_example_of_its_own_schema(client: FlaskClient) -> None:
    spec = document(client)
    jsonschema = pytest.importorskip("jsonschema", reason="a development tool that an offline GPU box lacks")
    every = list(shown(spec))
    assert len(every) > 80 and [where for where, _, example in every if example is None] == []
    for where, schema, example in every:
        whole = {**schema, "components": spec["components"]}
        faults = jsonschema.Draft202012Validator(whole).iter_errors(example)
        assert [f"{where}: {fault.message}" for fault in faults] == []


def test_the_examples_have_what_answers_have(client: FlaskClient, records: JobStore) -> None:
    examples = {where: example for where, _, example in shown(document(client))}
    job_id, attempt = claimed(client, records)
    queued = client.post("/evaluate", json={"kernel": kernel(RELU, "torch")}).get_json()
    assert set(examples["post /evaluate 202"]) == set(queued)
    refused = client.post("/evaluate", json={"kernel": kernel(RELU, "cudnn")}).get_json()
    assert set(examples["post /evaluate 400"]) == set(refused)
    records.complete(job_id, attempt, results.passed(2.0))
    ended = client.get(f"/job/{job_id}").get_json()
    assert set(examples["get /job/{job_id} 200"]) == set(ended)
    assert (
        set(examples["post /compare 200"]) == set(ended["result"]) == set(examples["get /job/{job_id} 200"]["result"])
    )
    assert set(examples["webhook"]) == set(message(records.get(job_id)))  # type: ignore[arg-type]


def test_real_answers_fit_their_schemas(client: FlaskClient, records: JobStore) -> None:
    spec = document(client)
    jsonschema = pytest.importorskip("jsonschema", reason="a development tool that an offline GPU box lacks")

    def check(body: Any, schema: Json) -> None:
        faults = jsonschema.Draft202012Validator({**schema, "components": spec["components"]}).iter_errors(body)
        assert [fault.message for fault in faults] == []

    def answered(method: str, path: str, status: int, job_id: str = "", **options: Any) -> Json:
        answer = client.open(path.format(job_id=job_id), method=method, **options)
        assert answer.status_code == status, answer.get_data(as_text=True)
        content = spec["paths"][path][method]["responses"][str(status)]["content"]
        check(answer.get_json(), content[answer.mimetype]["schema"])
        body: Json = answer.get_json()
        return body

    job_id, attempt = claimed(client, records)
    submission = {"kernel": kernel(RELU, "torch")}
    answered("post", "/evaluate", 202, json=submission)
    answered("post", "/evaluate", 400, json={"kernel": kernel(RELU, "cudnn")})
    batch = answered("post", "/batch", 202, json={"jobs": [submission]})
    answered("get", "/job/{job_id}", 404, "unknown")
    records.complete(job_id, attempt, results.passed(2.0))
    ended = answered("get", "/job/{job_id}", 200, job_id)
    check(ended["result"], {"$ref": "#/components/schemas/Result"})
    check(message(records.get(job_id)), spec["components"]["schemas"]["JobEnded"])  # type: ignore[arg-type]
    for path, status in (("/jobs", 200), ("/health", 503), ("/stats", 200), ("/", 200)):
        answered("get", path, status, headers={"Accept": "application/json"})
    answered("post", "/jobs/cancel", 200, json={"batch_id": batch["batch_id"]})


def names_in(part: Any) -> Iterator[str]:
    """Every key, every string that is one word, and every word in backticks."""
    match part:
        case dict():
            yield from part
            for value in part.values():
                yield from names_in(value)
        case list():
            for value in part:
                yield from names_in(value)
        case str():
            yield part
            for quoted in re.findall(r"`([^`]+)`", part):
                yield from re.findall(r"\w+", quoted)


def test_document_has_no_former_field_name(client: FlaskClient) -> None:
    names = set(names_in(document(client)))
    assert {"explanation", "latency_ms", "target_precision", "ci_low"} <= names, "examples and descriptions are read"
    assert names & RENAMED == set()


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
