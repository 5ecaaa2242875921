"""Bodies that are taken: the original's README and test data, and what its clients send besides."""

from __future__ import annotations

import base64
import gzip
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from redis import Redis

from domain.access import Scope
from domain.device_metrics import CounterRequest, Level
from domain.request import Request
from domain.settings import settings
from tasks.fleet.heartbeat import Heartbeat
from tasks.jobs.job_store import JobStore
from tasks.node.device_info import CPU, Device
from tests.api.keyed import app_with, holder
from tests.api.payloads import (
    CUDA_ADD,
    DOUBLE,
    LEGACY,
    README,
    RELU,
    TEST_DATA,
    TRITON_ADD,
    VECTOR_ARGS,
    Json,
    kernel,
    scalar,
    tensor,
)

TORCH = kernel(RELU, "torch")


def accept(client: FlaskClient, path: str, body: Json) -> str:
    answer = client.post(path, json=body)
    assert answer.status_code == 202, answer.get_data(as_text=True)
    job = answer.get_json()
    assert answer.headers["Location"] == f"/job/{job['job_id']}"
    assert answer.headers["Cache-Control"] == "no-cache, no-store, must-revalidate"
    assert (job["state"], job["status"], job["result"], job["queue_position"]) == ("queued", "submitted", None, 0)
    return str(job["job_id"])


def stored(client: FlaskClient, records: JobStore, path: str, body: Json) -> Request:
    """What a worker would be given."""
    job_id = accept(client, path, body)
    claim = records.claim("a worker")
    assert claim is not None and claim.job_id == job_id
    return claim.request


@pytest.mark.parametrize("name", README)
def test_readme_bodies(client: FlaskClient, name: str) -> None:
    accept(client, *README[name])


@pytest.mark.parametrize("name", TEST_DATA)
def test_bodies_of_the_original_test_data(client: FlaskClient, name: str) -> None:
    accept(client, "/compare", TEST_DATA[name])


@pytest.mark.parametrize("path", ["/", "/compare"])
def test_legacy_body(client: FlaskClient, records: JobStore, path: str) -> None:
    request = stored(client, records, path, {**LEGACY, "atol": "nonsense"})
    assert (request.kernel.kernel_type, request.num_trials, request.timeout) == ("torch_cuda", 100, 30)
    assert request.reference is not None
    assert (request.reference.kernel_type, request.reference.source_code) == ("torch", DOUBLE)
    assert (request.atol, request.rtol) == (None, None)


def test_new_body_on_the_legacy_path(client: FlaskClient) -> None:
    accept(client, "/", README["compare"][1])


def test_kernel_is_taken_for_ref_kernel(client: FlaskClient, records: JobStore) -> None:
    body = {"kernel": kernel(DOUBLE, "torch"), "custom_kernel": kernel(RELU, "torch")}
    request = stored(client, records, "/compare", body)
    assert request.reference is not None
    assert (request.reference.source_code, request.kernel.source_code) == (DOUBLE, RELU)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ({}, (100, 120)),
        ({"num_trials": "7", "timeout": 600.0}, (7, 600)),
        ({"num_trials": 10_000, "timeout": 5}, (10_000, 5)),
    ],
)
def test_numbers_are_read_leniently(client: FlaskClient, records: JobStore, sent: Json, read: Any) -> None:
    request = stored(client, records, "/evaluate", {"kernel": kernel(RELU, "torch"), **sent})
    assert (request.num_trials, request.timeout) == read


def test_when_and_where(client: FlaskClient, records: JobStore, redis: Redis) -> None:
    body = {"kernel": kernel(RELU, "torch")}
    request = stored(client, records, "/evaluate", body)
    assert (request.priority, request.gpu, request.reuse) == (5, None, False)
    asked = {"priority": "9", "gpu": "H200", "reuse": "allow"}
    refused = client.post("/evaluate", json={**body, **asked})
    problem = refused.get_json()
    assert (refused.status_code, problem["type"]) == (422, "urn:kernel-eval:problem:no-such-gpu")
    assert problem["errors"][0]["path"] == ["gpu"]
    assert "available: none" in problem["detail"]
    Heartbeat(redis, "a", Device("GPU-1", 0, "NVIDIA H200", "h200"), 1, {}).beat()
    Heartbeat(redis, "b", CPU, 1, {}).beat()
    assert "available: cpu, h200" in client.post("/evaluate", json={**body, "gpu": "h100"}).get_json()["detail"]
    batch = client.post("/batch", json={"jobs": [body, {**body, "gpu": "h100"}]}).get_json()
    assert ["problem" in entry for entry in batch["jobs"]] == [False, True]
    assert records.claim("a worker") is not None
    job = client.get(f"/job/{accept(client, '/evaluate', {**body, **asked})}").get_json()
    assert (job["priority"], job["gpu"], job["queue_position"]) == (9, "h200", 0)
    assert records.claim("a worker", "cpu") is None
    claim = records.claim("another", "h200")
    assert claim is not None
    redis.delete("worker:a")
    away = client.post("/evaluate", json={**body, "gpu": "h200"})
    assert (away.status_code, away.headers["Retry-After"]) == (503, "5")
    assert away.get_json()["type"] == "urn:kernel-eval:problem:gpu-away"
    assert (claim.request.priority, claim.request.gpu, claim.request.reuse) == (9, "h200", True)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ({}, ("default", 100, 0.01)),
        ({"budget": "quick"}, ("quick", 20, 0.05)),
        ({"budget": "precise"}, ("precise", 1000, 0.002)),
        ({"budget": "quick", "num_trials": 7}, ("quick", 7, 0.05)),
        ({"budget": "precise", "target_precision": 0.1}, ("precise", 1000, 0.1)),
    ],
)
def test_a_budget_sets_what_is_not_given(client: FlaskClient, records: JobStore, sent: Json, read: Any) -> None:
    request = stored(client, records, "/evaluate", {"kernel": kernel(RELU, "torch"), **sent})
    assert (request.budget, request.num_trials, request.target_precision) == read


@pytest.mark.parametrize(("sent", "read"), [({}, False), ({"gradients": True}, True)])
def test_gradients(client: FlaskClient, records: JobStore, sent: Json, read: bool) -> None:
    body = {"ref_kernel": kernel(RELU, "torch"), "custom_kernel": kernel(RELU, "triton"), **sent}
    assert stored(client, records, "/compare", body).gradients is read


@pytest.mark.parametrize(("sent", "read"), [({}, "task"), ({"strictness": "robust"}, "robust")])
def test_strictness(client: FlaskClient, records: JobStore, sent: Json, read: str) -> None:
    body = {"ref_kernel": kernel(RELU, "torch"), "custom_kernel": kernel(RELU, "torch"), **sent}
    assert stored(client, records, "/compare", body).strictness == read


@pytest.mark.parametrize(
    ("sent", "read"),
    [({}, (None, None)), ({"atol": None, "rtol": 1e-5}, (None, 1e-5)), ({"atol": 0, "rtol": "0.5"}, (0.0, 0.5))],
)
def test_tolerances(client: FlaskClient, records: JobStore, sent: Json, read: Any) -> None:
    body = {"ref_kernel": kernel(RELU, "torch"), "custom_kernel": kernel(RELU, "torch"), **sent}
    request = stored(client, records, "/compare", body)
    assert (request.atol, request.rtol) == read


@pytest.mark.parametrize(("sent", "read"), [({}, False), ({"profile": True}, True), ({"profile": "false"}, False)])
def test_a_profiled_call_is_asked_for(client: FlaskClient, records: JobStore, sent: Json, read: bool) -> None:
    assert stored(client, records, "/evaluate", {"kernel": kernel(RELU, "torch"), **sent}).profile is read
    body = {"ref_kernel": kernel(RELU, "torch"), "custom_kernel": kernel(RELU, "torch"), **sent}
    assert stored(client, records, "/compare", body).profile is read
    assert stored(client, records, "/", {**LEGACY, "profile": "nonsense"}).profile is False


@pytest.mark.parametrize(
    ("sent", "read"),
    [({}, ()), ({"artifacts": []}, ()), ({"artifacts": ["ttir", "ptx", "sass", "ptx"]}, ("ptx", "sass", "ttir"))],
)
def test_artifacts_are_asked_for(client: FlaskClient, records: JobStore, sent: Json, read: Any) -> None:
    assert stored(client, records, "/evaluate", {"kernel": kernel(RELU, "torch"), **sent}).artifacts == read
    body = {"ref_kernel": kernel(RELU, "torch"), "custom_kernel": kernel(RELU, "torch"), **sent}
    assert stored(client, records, "/compare", body).artifacts == read
    assert stored(client, records, "/", {**LEGACY, "artifacts": "nonsense"}).artifacts == ()


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ({}, None),
        ({"device_metrics": False}, None),
        ({"device_metrics": True}, CounterRequest()),
        ({"device_metrics": "basic"}, CounterRequest(Level.BASIC)),
        ({"device_metrics": "full"}, CounterRequest(Level.FULL)),
        ({"device_metrics": ["b__c.sum", "a.max", "a.max"]}, CounterRequest(metrics=("a.max", "b__c.sum"))),
    ],
)
def test_device_metrics_are_asked_for(
    client: FlaskClient, records: JobStore, sent: Json, read: CounterRequest | None
) -> None:
    assert stored(client, records, "/evaluate", {"kernel": TORCH, **sent}).device_metrics == read
    body = {"ref_kernel": TORCH, "custom_kernel": TORCH, **sent}
    assert stored(client, records, "/compare", body).device_metrics == read
    assert stored(client, records, "/", {**LEGACY, "device_metrics": 7}).device_metrics is None


def test_who_says_nothing_of_device_metrics_gets_what_the_operator_has_set(
    client: FlaskClient, records: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.schemas.request.settings", lambda: replace(settings(), enable_device_metrics=True))
    body = {"kernel": TORCH}
    assert stored(client, records, "/evaluate", body).device_metrics == CounterRequest()
    assert stored(client, records, "/", LEGACY).device_metrics == CounterRequest()
    assert stored(client, records, "/evaluate", {**body, "device_metrics": False}).device_metrics is None
    full = stored(client, records, "/evaluate", {**body, "device_metrics": "full"})
    assert full.device_metrics == CounterRequest(Level.FULL)


@pytest.mark.parametrize(("sent", "read"), [({}, False), ({"sanitize": True}, True), ({"sanitize": "no"}, False)])
def test_the_sanitizer_is_asked_for(client: FlaskClient, records: JobStore, sent: Json, read: bool) -> None:
    assert stored(client, records, "/evaluate", {"kernel": TORCH, **sent}).sanitize is read
    body = {"ref_kernel": TORCH, "custom_kernel": TORCH, **sent}
    assert stored(client, records, "/compare", body).sanitize is read
    assert stored(client, records, "/", {**LEGACY, "sanitize": "nonsense"}).sanitize is False


def test_unknown_keys_around_the_kernel_are_ignored(client: FlaskClient) -> None:
    args = [{**tensor("x", [4], note="?"), "comment": "ignored"}, tensor("y", [4], "output")]
    body = {"kernel": kernel(CUDA_ADD, "cuda", args, grid={"x": 1, "w": 9}, stream=3), "num_warmup": 3, "index": 0}
    accept(client, "/evaluate", body)


def _strange_contract() -> Json:
    x, out = tensor("x", [4], low=1.0, hihg=2.0), tensor("y", [4], "output")
    x["tensor_spec"]["dtpye"] = "float16"
    out["rolle"] = "output"
    return kernel(CUDA_ADD, "cuda", [x, out], grid={"x": 1, "w": 9}, stream=3)


def _strange_in(name: str) -> list[str]:
    io = f"{name} -> io"
    return [
        f"{io} -> args -> 0 -> tensor_spec -> dtpye",
        f"{io} -> args -> 0 -> tensor_spec -> init -> hihg (did you mean high?)",
        f"{io} -> args -> 1 -> rolle",
        f"{io} -> launch -> stream",
        f"{io} -> launch -> grid -> w",
    ]


@pytest.mark.parametrize(
    ("path", "body", "ignored"),
    [
        ("/evaluate", {"kernel": TORCH, "num_trails": 9}, ["num_trails (did you mean num_trials?)"]),
        (
            "/evaluate",
            {"kernel": TORCH, "enable_device_metrics": True},
            ["enable_device_metrics (did you mean device_metrics?)"],
        ),
        ("/evaluate", {"kernel": TORCH, "num_trials": 9, "webhook": None, "index": 0}, ["index"]),
        (
            "/evaluate",
            {"kernel": {**TORCH, "metadata": {"function": "kernel_fn", "author": "me", "backend": None}}},
            [
                "kernel -> metadata -> function (did you mean function_name?)",
                "kernel -> metadata -> author",
            ],
        ),
        ("/evaluate", {"kernel": TORCH, "x" * 100: 1}, ["x" * 60]),
        ("/compare", {"kernel": TORCH, "custom_kernel": TORCH, "Rtol": 1}, ["Rtol (did you mean rtol?)"]),
        ("/compare", {"kernel": TORCH, "ref_kernel": TORCH, "custom_kernel": TORCH}, ["kernel"]),
        ("/", {**LEGACY, "atol": 1}, ["atol"]),
        ("/evaluate", {"kernel": _strange_contract(), "index": 0}, ["index", *_strange_in("kernel")]),
        ("/compare", {"ref_kernel": TORCH, "custom_kernel": _strange_contract()}, _strange_in("custom_kernel")),
        ("/compare", {"kernel": _strange_contract(), "custom_kernel": TORCH}, _strange_in("ref_kernel")),
    ],
)
def test_ignored_fields_are_named(client: FlaskClient, path: str, body: Json, ignored: list[str]) -> None:
    assert client.post(path, json=body).get_json()["ignored"] == ignored
    entries = client.post("/batch", json={"jobs": [body], "retry": 1}).get_json()
    assert (entries["ignored"], entries["jobs"][0]["ignored"]) == (["retry"], ignored)


def test_what_is_ignored_beside_another_name_of_the_kernel_is_named(client: FlaskClient) -> None:
    body = {"ref_kernel": TORCH, "atol": 0.1}
    assert client.post("/evaluate", json=body).get_json()["ignored"] == ["atol"]
    [entry] = client.post("/batch", json={"jobs": [{**body, "operation": "evaluate"}]}).get_json()["jobs"]
    assert entry["ignored"] == ["atol"]


def test_nothing_is_named_where_nothing_is_ignored(client: FlaskClient) -> None:
    batch = client.post("/batch", json={"jobs": [{"operation": "evaluate", "kernel": TORCH}]}).get_json()
    assert "ignored" not in batch and "ignored" not in batch["jobs"][0]


RAW = bytes(range(64))


@pytest.mark.parametrize(
    "kernel_code",
    [
        kernel("", "torch"),
        {**kernel(RELU, "torch"), "io": None, "metadata": None},
        kernel("x" * (1 << 20), "torch"),
        {**kernel(TRITON_ADD, "triton"), "metadata": {"function_name": "run"}},
        {**kernel(TRITON_ADD, "triton"), "metadata": {"class_name": "Net"}},
        kernel(f"{TRITON_ADD}\nclass ModelNew(torch.nn.Module): ...", "triton"),
        kernel("", "triton"),
        kernel(TRITON_ADD.replace("\n", "\\n"), "triton"),
        kernel(
            f"{TRITON_ADD}\ndef add(x, y): vector_add[_grid(x)](x, y)\ndef _grid(x): ...\ndef get_inputs(): ...",
            "triton",
        ),
        {**kernel(RELU, "multi_kernel", [tensor("x", [2])]), "metadata": {"entry_point": "run"}},
        {**kernel(CUDA_ADD, "cuda", VECTOR_ARGS), "metadata": {"compiler_options": ["-O3"], "anything": [1, {}]}},
    ],
)
def test_kernels(client: FlaskClient, kernel_code: Json) -> None:
    accept(client, "/evaluate", {"kernel": kernel_code})


def test_a_byte_order_mark_is_no_part_of_a_source(client: FlaskClient, records: JobStore) -> None:
    assert stored(client, records, "/evaluate", {"kernel": kernel(f"\ufeff{RELU}", "torch")}).kernel.source_code == RELU


@pytest.mark.parametrize(
    "argument",
    [
        tensor("x", [], kind="randn"),
        tensor("x", [0, 4]),
        tensor("x", [4], None),
        tensor("x", [4], "inout", kind="uniform", low=-0.1, high=0),
        tensor("x", [4], dtype="int32", kind="uniform", low=3, high=3),
        tensor("x", [4], dtype="int64", kind="randint", low=0, high=10),
        tensor("x", [4], kind="full", fill_value=True, dtype="bool"),
        tensor("x", [4], kind="arange", start=1, step=-0.5),
        tensor("x", [4], kind="randn", std=0, mean=2, seed=2**63),
        tensor("x", [4], dtype="bfloat16", kind="empty"),
        tensor("x", [4], dtype="float8_e4m3fn"),
        {"name": "x", "type": "tensor", "tensor_spec": {"shape": [3, 4], "strides": [1, 3]}, "role": None},
        {"name": "x", "type": "tensor", "tensor_spec": {"shape": [3, 4], "strides": [0, 1], "init": None}},
        {"name": "x", "type": "tensor", "tensor_spec": {"data": {
            "data_b64": base64.b64encode(RAW).decode(), "dtype": "int64", "shape": [2, 4]}}},
        {"name": "x", "type": "tensor", "tensor_spec": {"shape": [9, 9], "data": {
            "data_b64": base64.b64encode(zlib.compress(RAW)).decode(), "shape": [16], "compress": "zlib"}}},
        {"name": "x", "type": "tensor", "tensor_spec": {"data": {"data_b64": "", "shape": [0]}}},
        {"name": "x", "type": "tensor", "tensor_spec": {"data": {
            "data_b64": "AAAA\n AAA=\n", "shape": [5], "dtype": "uint8"}}},
        scalar("s", 2, "float"), scalar("s", 2.0, "int"), scalar("s", True, "bool"), scalar("s", -(2**63)),
        {"name": "s", "type": "str", "value": "mode", "is_meta": True},
        {"name": "bias", "type": "none"}, {"name": "bias", "type": "none", "value": None, "is_meta": True},
    ],
)  # fmt: skip
def test_arguments(client: FlaskClient, argument: Json) -> None:
    accept(client, "/evaluate", {"kernel": kernel(CUDA_ADD, "cuda", [argument])})


@pytest.mark.parametrize(
    ("launch", "read"),
    [
        ({}, None),
        ({"grid": None, "block": None}, None),
        ({"grid": {"x": 4}}, (4, 1, 1)),
        ({"grid": {"y": "2", "z": None}}, (1, 2, 1)),
        ({"grid": [4, 2]}, (4, 2, 1)),
        ({"grid": 7}, (7, 1, 1)),
        ({"grid": "cdiv(n, 256)"}, ("cdiv(n, 256)", 1, 1)),
        ({"grid": ["n * 2", 1, "max(k, 1)"]}, ("n * 2", 1, "max(k, 1)")),
    ],
)
def test_grids(client: FlaskClient, records: JobStore, launch: Json, read: Any) -> None:
    args = [tensor("x", [4]), scalar("n", 1000), scalar("k", 3)]
    code = kernel(CUDA_ADD, "cuda", args)
    code["io"]["launch"] = {**launch, "shared_mem": "n * 4"}
    request = stored(client, records, "/evaluate", {"kernel": code})
    assert request.kernel.io is not None
    assert request.kernel.io.launch.grid == read


def test_a_triton_grid_may_name_what_only_the_autotuner_knows(client: FlaskClient) -> None:
    accept(
        client, "/evaluate", {"kernel": kernel(TRITON_ADD, "triton", VECTOR_ARGS, grid="cdiv(n_elements, BLOCK_SIZE)")}
    )


def test_the_content_type_is_asked_for_where_no_key_is(client: FlaskClient, redis: Redis, tmp_path: Path) -> None:
    """Any page may send a form or a plain text here, but no key with it."""
    body = b'\xef\xbb\xbf{"kernel": {"source_code": "", "kernel_type": "torch"}}'
    with app_with(REQUIRE_API_KEYS="on", API_KEYS_FILE=str(tmp_path / "keys.json")) as app:
        alice = holder(app, "alice", Scope.SUBMIT)
        for content_type in ("application/x-www-form-urlencoded", "text/plain", "application/xml", None):
            assert alice("POST", "/evaluate", data=body, content_type=content_type).status_code == 202
            refused = client.post("/evaluate", data=body, content_type=content_type)
            assert refused.status_code == 415, content_type
            assert "curl: -H 'Content-Type: application/json'" in refused.get_json()["detail"]
    compressed = client.post(
        "/evaluate", data=gzip.compress(body), headers={"Content-Encoding": "gzip"}, content_type="application/json"
    )
    assert compressed.status_code == 415 and "send it as it is" in compressed.get_json()["detail"]
    for content_type in ("application/json", "application/json; charset=utf-8", "application/problem+json"):
        assert client.post("/evaluate", data=body, content_type=content_type).status_code == 202
