"""Bodies that are refused: each answer is a problem document that names the field and says what to do."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import time
import zlib
from threading import Event, Thread
from typing import Any

import pytest
from flask.testing import FlaskClient
from gunicorn.http.body import Body, LengthReader
from gunicorn.http.unreader import SocketUnreader

from api.http import connections
from tasks.jobs.job_store import JobStore
from tests.api.payloads import CUDA_ADD, RELU, TRITON_ADD, Json, kernel, scalar, tensor

JSON = "application/json"
GOOD = kernel(RELU, "torch")
X = tensor("x", [4])


def refuse(client: FlaskClient, path: str, body: Any) -> Json:
    answer = client.post(path, json=body)
    assert answer.status_code == 400, answer.get_data(as_text=True)
    assert answer.content_type == "application/problem+json"
    problem: Json = answer.get_json()
    assert (problem["status"], problem["instance"]) == (400, path)
    assert problem["type"] == "urn:kernel-eval:problem:invalid-request"
    assert problem["error"] == problem["detail"]
    assert "Traceback" not in answer.get_data(as_text=True)
    return problem


def names(problem: Json, field: str) -> None:
    """The problem names this field, in every form that it has."""
    assert field in [entry["field"] for entry in problem["validation_errors"]]
    assert field in [" -> ".join(map(str, entry["path"])) for entry in problem["errors"]]
    assert "/" + field.replace(" -> ", "/") in [entry["pointer"] for entry in problem["errors"]]


def without(body: Json, key: str) -> Json:
    return {name: value for name, value in body.items() if name != key}


OUTER: list[tuple[Any, str]] = [
    ({}, "kernel"),
    ({"kernel": None}, "kernel"),
    ({"kernel": "source"}, "kernel"),
    ({"kernel": []}, "kernel"),
    *(
        ({"kernel": GOOD, "num_trials": bad}, "num_trials")
        for bad in (0, -1, 10_001, 2.5, "2.5", "x", "", True, None, [], {})
    ),
    *(({"kernel": GOOD, "timeout": bad}, "timeout") for bad in (4, 2, 601, 1e300, 10**400, "soon", False, None)),
    *(({"kernel": GOOD, "profile": bad}, "profile") for bad in (None, 2, "maybe", [], {})),
    *(({"kernel": GOOD, "budget": bad}, "budget") for bad in (None, "", "Quick", 1)),
    *(({"kernel": GOOD, "priority": bad}, "priority") for bad in (-1, 10, 5.5, None, "high", True)),
    *(({"kernel": GOOD, "gpu": bad}, "gpu") for bad in ("", "h 200", "-", "h200\n", 1, "x" * 61)),
    *(({"kernel": GOOD, "reuse": bad}, "reuse") for bad in (None, True, "always")),
    *(({"kernel": GOOD, "artifacts": bad}, "artifacts") for bad in (None, "ptx", {"ptx": True}, ["ptx"] * 6)),
    *(({"kernel": GOOD, "artifacts": ["ptx", bad]}, "artifacts -> 1") for bad in ("PTX", "cubin", "", None, 1)),
    *(
        ({"kernel": GOOD, "device_metrics": bad}, "device_metrics")
        for bad in (None, 1, "", "true", "Full", {"level": "full"}, [], ["a__b.sum"] * 33)
    ),
    *(
        ({"kernel": GOOD, "device_metrics": ["sm__cycles_active.avg", bad]}, "device_metrics -> 1")
        for bad in (
            "",
            "full",
            "SM__cycles",
            "regex:.*",
            "a b",
            "--set",
            "a\n",
            "a.",
            "a" * 161,
            "a.b.c.d.e.f.g",
            None,
            1,
        )
    ),
    *(({"kernel": GOOD, "sanitize": bad}, "sanitize") for bad in (None, 2, "memcheck", ["memcheck"])),
    ({"kernel": without(GOOD, "source_code")}, "kernel -> source_code"),
    ({"kernel": without(GOOD, "kernel_type")}, "kernel -> kernel_type"),
    *(({"kernel": {**GOOD, "source_code": bad}}, "kernel -> source_code") for bad in (None, 1, [], {})),
    ({"kernel": {**GOOD, "source_code": "é" * (1 << 19) + "x"}}, "kernel -> source_code"),
    *(
        ({"kernel": {**GOOD, "kernel_type": bad}}, "kernel -> kernel_type")
        for bad in ("Torch", "TORCH", "", "hip", None, 1)
    ),
    ({"kernel": {**GOOD, "kernel_name": "f"}}, "kernel -> kernel_name"),
    ({"kernel": {**GOOD, "io": []}}, "kernel -> io"),
    ({"kernel": {**GOOD, "io": {}}}, "kernel -> io -> args"),
    ({"kernel": {**GOOD, "io": {"args": {}}}}, "kernel -> io -> args"),
    ({"kernel": {**GOOD, "io": {"args": [X] * 257}}}, "kernel -> io -> args"),
    ({"kernel": {**GOOD, "metadata": []}}, "kernel -> metadata"),
    ({"kernel": {**GOOD, "metadata": {"function_name": 1}}}, "kernel -> metadata -> function_name"),
    ({"kernel": {**GOOD, "metadata": {"compiler_options": "-O3"}}}, "kernel -> metadata -> compiler_options"),
    ({"kernel": {**GOOD, "metadata": {"functions": "run"}}}, "kernel -> metadata -> functions"),
    ({"kernel": kernel(TRITON_ADD, "triton")}, "kernel -> io"),
    (
        {"kernel": {**kernel(TRITON_ADD, "triton"), "metadata": {"kernel_name": []}}},
        "kernel -> metadata -> kernel_name",
    ),
    ({"kernel": kernel(CUDA_ADD, "cuda")}, "kernel -> io"),
    ({"kernel": {**kernel(RELU, "multi_kernel"), "metadata": {"entry_point": "f"}}}, "kernel -> io"),
    ({"kernel": kernel(RELU, "multi_kernel", [X])}, "kernel -> metadata -> entry_point"),
]


@pytest.mark.parametrize(("body", "field"), OUTER)
def test_evaluate(client: FlaskClient, body: Any, field: str) -> None:
    names(refuse(client, "/evaluate", body), field)


COMPARE: list[tuple[Any, str]] = [
    ({}, "ref_kernel"),
    ({"ref_kernel": GOOD}, "custom_kernel"),
    ({"custom_kernel": GOOD}, "ref_kernel"),
    *(
        ({"ref_kernel": GOOD, "custom_kernel": GOOD, name: bad}, name)
        for name in ("atol", "rtol")
        for bad in (-1e-9, "tight", True, [])
    ),
    ({"ref_kernel": GOOD, "custom_kernel": GOOD, "artifacts": ["elf"]}, "artifacts -> 0"),
    ({"ref_kernel": GOOD, "custom_kernel": GOOD, "strictness": "strict"}, "strictness"),
    ({"ref_kernel": GOOD, "custom_kernel": GOOD, "gradients": "all"}, "gradients"),
    (
        {
            "ref_kernel": GOOD,
            "custom_kernel": kernel(CUDA_ADD, "cuda", [X], grid={"x": 1}, block={"x": 32}),
            "gradients": True,
        },
        "custom_kernel -> kernel_type",
    ),
    (
        {"ref_kernel": kernel(TRITON_ADD, "triton", [X], grid={"x": 1}), "custom_kernel": GOOD, "gradients": True},
        "ref_kernel -> io",
    ),
    ({"ref_kernel": GOOD, "custom_kernel": kernel(TRITON_ADD, "triton")}, "custom_kernel -> io"),
    ({"ref_kernel": kernel(CUDA_ADD, "cuda"), "custom_kernel": GOOD}, "ref_kernel -> io"),
    ({"ref_code": 1, "custom_code": "x"}, "ref_code"),
    ({"ref_code": "x", "custom_code": "x" * ((1 << 20) + 1)}, "custom_code"),
    ({"ref_code": "x", "custom_code": "x", "num_trials": 0}, "num_trials"),
    ({"ref_code": "x"}, "custom_code"),
    ({"custom_code": "x"}, "ref_code"),
    ({"ref_code": "x", "custom_kernel": GOOD}, "ref_kernel"),
]


@pytest.mark.parametrize(("body", "field"), COMPARE)
@pytest.mark.parametrize("path", ["/compare", "/"])
def test_compare(client: FlaskClient, path: str, body: Any, field: str) -> None:
    names(refuse(client, path, body), field)


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def inline(text: str, **more: Any) -> Json:
    return {"name": "x", "type": "tensor", "tensor_spec": {"data": {"data_b64": text, "shape": [4], **more}}}


SPEC, INIT, DATA = "tensor_spec", "tensor_spec -> init", "tensor_spec -> data"
BOMB = b64(zlib.compress(bytes(1 << 24)))
ARGUMENTS: list[tuple[Any, str]] = [
    (None, ""),
    ("x", ""),
    (without(X, "name"), "name"),
    ({**X, "name": "x" * 257}, "name"),
    (without(X, "type"), "type"),
    ({**X, "type": "Tensor"}, "type"),
    ({**X, "role": "in"}, "role"),
    ({**X, "role": 1}, "role"),
    ({**X, "is_meta": "perhaps"}, "is_meta"),
    (without(X, "tensor_spec"), SPEC),
    ({**X, "tensor_spec": None}, SPEC),
    ({**X, "tensor_spec": [4]}, SPEC),
    (tensor("x", [-1]), f"{SPEC} -> shape -> 0"),
    (tensor("x", [4, 2.5]), f"{SPEC} -> shape -> 1"),  # type: ignore[list-item]
    (tensor("x", ["batch"]), f"{SPEC} -> shape -> 0"),  # type: ignore[list-item]
    (tensor("x", 4), f"{SPEC} -> shape"),  # type: ignore[arg-type]
    (tensor("x", [1] * 33), f"{SPEC} -> shape"),
    (tensor("x", [1 << 20, 1 << 20]), f"{SPEC} -> shape"),
    (tensor("x", [4], dtype="float"), f"{SPEC} -> dtype"),
    (tensor("x", [4], dtype="torch.float32"), f"{SPEC} -> dtype"),
    ({**X, "tensor_spec": {"shape": [4, 4], "strides": [1]}}, f"{SPEC} -> strides"),
    ({**X, "tensor_spec": {"shape": [4], "strides": [-1]}}, f"{SPEC} -> strides -> 0"),
    ({**X, "tensor_spec": {"shape": [4], "strides": [1 << 40]}}, f"{SPEC} -> shape"),
    ({**X, "tensor_spec": {"shape": [4], "init": "randn"}}, INIT),
    (tensor("x", [4], kind="normal"), f"{INIT} -> kind"),
    (tensor("x", [4], kind="randn", std=-1), f"{INIT} -> std"),
    (tensor("x", [4], kind="randn", seed=0.5), f"{INIT} -> seed"),
    (tensor("x", [4], kind="uniform", low=1, high=0), f"{INIT} -> high"),
    (tensor("x", [4], kind="uniform", low=2), f"{INIT} -> high"),
    (tensor("x", [4], kind="randint", low=3, high=3, dtype="int32"), f"{INIT} -> high"),
    (tensor("x", [4], kind="full", fill_value="zero"), f"{INIT} -> fill_value"),
    (tensor("x", [4], kind="full", fill_value=2**64), f"{INIT} -> fill_value"),
    (tensor("x", [4], kind="full", fill_value=10**400), f"{INIT} -> fill_value"),
    (tensor("x", [4], kind="arange", step="a"), f"{INIT} -> step"),
    ({**X, "tensor_spec": {"data": {"shape": [4]}}}, f"{DATA} -> data_b64"),
    (inline("!!!!"), f"{DATA} -> data_b64"),
    (inline("AAA"), f"{DATA} -> data_b64"),
    (inline("ÄÄÄÄ"), f"{DATA} -> data_b64"),
    (inline(b64(bytes(15))), f"{DATA} -> data_b64"),
    (inline(b64(bytes(17))), f"{DATA} -> data_b64"),
    (inline(b64(bytes(16)), compress="gzip"), f"{DATA} -> compress"),
    (inline(b64(bytes(16)), dtype="f32"), f"{DATA} -> dtype"),
    (inline(b64(bytes(16)), compress="zlib"), f"{DATA} -> data_b64"),
    (inline(b64(zlib.compress(bytes(16))[:-4]), compress="zlib"), f"{DATA} -> data_b64"),
    (inline(b64(zlib.compress(bytes(16)) + b"x"), compress="zlib"), f"{DATA} -> data_b64"),
    (inline(BOMB, compress="zlib"), f"{DATA} -> data_b64"),
    (inline(BOMB, compress="zlib", shape=[1 << 30]), f"{DATA} -> shape"),
    *((scalar("s", bad, "int"), "value") for bad in (1.5, "1", True, None, 2**64, [])),  # type: ignore[arg-type]
    *((scalar("s", bad, "float"), "value") for bad in ("1.0", True, None, 10**400)),  # type: ignore[arg-type]
    *((scalar("s", bad, "bool"), "value") for bad in (1, "true")),  # type: ignore[arg-type]
    ({"name": "s", "type": "str", "value": 1}, "value"),
    ({"name": "s", "type": "int"}, "value"),
]  # fmt: skip


@pytest.mark.parametrize(("argument", "field"), ARGUMENTS)
def test_arguments(client: FlaskClient, argument: Any, field: str) -> None:
    problem = refuse(client, "/evaluate", {"kernel": kernel(CUDA_ADD, "cuda", [X, argument])})
    names(problem, "kernel -> io -> args -> 1" + (f" -> {field}" if field else ""))


PACKED = inline(b64(zlib.compress(bytes(1 << 26), 9)), compress="zlib", dtype="uint8", shape=[1 << 26])
"""64 MiB of zeros in 64 KB; eight of them are what a request may have inflated."""


def test_what_a_request_inflates_is_bounded_over_all_its_arguments(client: FlaskClient) -> None:
    problem = refuse(client, "/evaluate", {"kernel": kernel(CUDA_ADD, "cuda", [PACKED] * 10)})
    assert [each["path"][3:] for each in problem["errors"]] == [
        [position, "tensor_spec", "data", "data_b64"] for position in (8, 9)
    ]
    assert "after 536870912 of the tensors before it" in problem["errors"][0]["message"]


def test_what_a_request_inflates_is_bounded_over_both_its_kernels(client: FlaskClient) -> None:
    of_five = kernel(CUDA_ADD, "cuda", [PACKED] * 5)
    problem = refuse(client, "/compare", {"ref_kernel": of_five, "custom_kernel": of_five})
    assert len(problem["errors"]) == 2


def test_what_a_request_inflates_is_bounded_over_all_bodies_of_a_batch(client: FlaskClient) -> None:
    of_four = {"kernel": kernel(CUDA_ADD, "cuda", [PACKED] * 4)}
    told = client.post("/batch", json={"jobs": [of_four] * 3}).get_json()
    assert [("problem" in entry) for entry in told["jobs"]] == [False, False, True]
    assert told["jobs"][2]["problem"]["errors"][0]["path"] == [
        *("kernel", "io", "args", 0, "tensor_spec", "data", "data_b64")
    ]


def test_what_is_refused_counts_as_inflated_too_and_the_next_request_begins_anew(client: FlaskClient) -> None:
    # A byte short, which is seen at the end: by then it is inflated.
    cut = inline(PACKED["tensor_spec"]["data"]["data_b64"], compress="zlib", dtype="uint8", shape=[(1 << 26) + 1])
    for _ in range(2):
        problem = refuse(client, "/evaluate", {"kernel": kernel(CUDA_ADD, "cuda", [cut] * 10)})
        told = ["one HTTP request may" in each["message"] for each in problem["errors"]]
        assert told == [False] * 7 + [True] * 3


LAUNCHES: list[tuple[Json, str]] = [
    ({"grid": 0}, "grid"),
    ({"grid": []}, "grid"),
    ({"grid": [1, 1, 1, 1]}, "grid"),
    ({"grid": {"x": -4}}, "grid -> x"),
    ({"grid": {"y": 65_536}}, "grid -> y"),
    ({"grid": [1, 2.5]}, "grid -> 1"),
    ({"grid": {"x": [1]}}, "grid -> x"),
    ({"grid": True}, "grid"),
    ({"grid": "n +"}, "grid"),
    ({"grid": "import os"}, "grid"),
    ({"grid": "__import__('os')"}, "grid"),
    ({"grid": "n ** n"}, "grid"),
    ({"grid": "missing"}, "grid"),
    ({"grid": "n - n"}, "grid"),
    ({"grid": "n // (n - n)"}, "grid"),
    ({"grid": "twice"}, "grid"),
    ({"grid": "(" * 300}, "grid"),
    ({"block": 1025}, "block"),
    ({"block": [32, 64]}, "block"),
    ({"grid": [1, 65_536]}, "grid -> 1"),
    ({"block": [1, 1, 65]}, "block -> 2"),
    ({"block": ["n", 2]}, "block"),
    ({"shared_mem": -1}, "shared_mem"),
    ({"shared_mem": (228 << 10) + 1}, "shared_mem"),
    ({"shared_mem": "n * 1000"}, "shared_mem"),
    ({"shared_mem": {"x": 1}}, "shared_mem"),
    ({"num_warps": 3}, "num_warps"),
    ({"num_warps": 64}, "num_warps"),
    ({"num_warps": "four"}, "num_warps"),
    ({"num_stages": -1}, "num_stages"),
]


@pytest.mark.parametrize(("launch", "field"), LAUNCHES)
def test_launches(client: FlaskClient, launch: Json, field: str) -> None:
    args = [X, scalar("n", 1000), scalar("twice", 1), scalar("twice", 2)]
    problem = refuse(client, "/evaluate", {"kernel": kernel(CUDA_ADD, "cuda", args, **launch)})
    names(problem, f"kernel -> io -> launch -> {field}")


def test_a_lambda_as_a_grid_is_told_what_is_a_grid(client: FlaskClient) -> None:
    code = kernel(CUDA_ADD, "cuda", [X, scalar("n", 4)], grid="lambda meta: (triton.cdiv(n, meta['B']),)")
    told = refuse(client, "/evaluate", {"kernel": code})["error"]
    assert "Lambda is not allowed" in told and 'as in "cdiv(n, BLOCK)"' in told


@pytest.mark.parametrize("launch", [[], "4", 4])
def test_launch_is_an_object(client: FlaskClient, launch: Any) -> None:
    code = {**kernel(CUDA_ADD, "cuda"), "io": {"args": [X], "launch": launch}}
    names(refuse(client, "/evaluate", {"kernel": code}), "kernel -> io -> launch")


def test_the_texts_that_clients_look_for(client: FlaskClient) -> None:
    assert "io_contract" in refuse(client, "/evaluate", {"kernel": kernel(TRITON_ADD, "triton")})["error"]
    assert "io_contract" in refuse(client, "/evaluate", {"ref_kernel": kernel(TRITON_ADD, "triton")})["error"]
    for kernel_type, source in (("triton", TRITON_ADD), ("cuda", CUDA_ADD), ("multi_kernel", RELU)):
        metadata = {"entry_point": "f"} if kernel_type == "multi_kernel" else {}
        bare = {**kernel(source, kernel_type), "metadata": metadata}
        told = refuse(client, "/evaluate", {"kernel": bare})["validation_errors"][0]["message"]
        shown = json.loads("{" + told[told.index('"io": {') : told.rindex("}") + 1] + "}")
        assert client.post("/evaluate", json={"kernel": {**bare, **shown}}).status_code == 202, told
    assert "/compare" in refuse(client, "/evaluate", {"ref_kernel": GOOD, "custom_kernel": GOOD})["error"]
    problem = refuse(client, "/evaluate", {"kernel": GOOD, "num_trials": 0, "timeout": 2})
    assert problem["error"] == "num_trials: must be between 1 and 10000; timeout: must be between 5 and 600"
    assert problem["details"] == {"num_trials": 0, "timeout": 2}
    kinds = {
        entry["field"]: entry["type"]
        for entry in refuse(client, "/evaluate", {"kernel": {"x": 1}})["validation_errors"]
    }
    assert kinds == {
        "kernel -> source_code": "missing", "kernel -> kernel_type": "missing", "kernel -> x": "extra_forbidden",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("addition", "metadata"),
    [
        ("def ceiling(a, b):\n    return -(-a // b)\n", {}),
        ("@triton.jit(\n    debug=True,\n)\ndef twice(x):\n    return 2 * x\n", {}),
        ("def add(x, y):\n    vector_add[(1,)](x, y, x, 4, 4)\n", {"kernel_name": "vector_add"}),
    ],
)
def test_a_bare_kernel_needs_a_contract_whatever_is_beside_it(
    client: FlaskClient, addition: str, metadata: Json
) -> None:
    code = {**kernel(f"{TRITON_ADD}\n{addition}", "triton"), "metadata": metadata}
    names(refuse(client, "/evaluate", {"kernel": code}), "kernel -> io")


RAW: list[tuple[bytes, str]] = [
    (b"", "empty"),
    (b"  \n", "empty"),
    (b"{", "line 1, column 2"),
    (b'{"kernel": }', "not JSON"),
    (b"{'kernel': 1}", "not JSON"),
    (b'{"a": 1} {"b": 2}', "not JSON"),
    (
        b'{"a": "\x01"}',
        "not JSON: Invalid control character at line 1, column 8; a line break or a tab inside",
    ),
    (b'{"a": "x\ny"}', "write \\n or \\t there, or make the body with jq or json.dumps"),
    (b'{"a": "' + b"\\" * 999, "not JSON"),
    (b'"' * 1001, "not JSON"),
    (b"[]", "array"),
    (b'"text"', "string"),
    (b"7", "number"),
    (b"null", "null"),
    (b"true", "boolean"),
    (b'{"kernel": NaN}', "NaN"),
    (b'{"num_trials": Infinity}', "Infinity"),
    (b'{"num_trials": -Infinity}', "-Infinity"),
    (b'{"num_trials": 1e999}', "num_trials"),
    (b'{"num_trials": ' + b"9" * 5000 + b"}", "4300 digits"),
    (b'{"kernel": "\xff"}', "not UTF-8"),
    (b'{"kernel": "\xed\xa0\x80"}', "not UTF-8"),
    ('{"kernel": 1}'.encode("utf-16"), "not"),
    (b'{"kernel": {"source_code": "a\\u0000b"}}', "kernel -> source_code"),
    (
        b'{"kernel": {"source_code": "x\\n# \\ud800"}}',
        "kernel -> source_code: the text holds a lone surrogate, \\ud800 at line 2, column 3; replace it",
    ),
    (
        gzip.compress(b'{"kernel": 1}', mtime=0),
        "the body is compressed, which the service does not take; send the JSON itself",
    ),
    (b'{"kernel": {"\\udfff": 1}}', "lone surrogate"),
    (b'{"kernel": {"io": 1, "a": [{"b": 1, "\\u0062": 2}], "io": 1}}', "kernel -> io: is given more than once"),
    (b'{"jobs": [{}, {"kernel": {}, "kernel": 1}]}', "jobs -> 1 -> kernel: is given more than once"),
    (b'{"a":' * 65 + b"1" + b"}" * 65, "more than 64 levels deep"),
    (b"[" * 100_000, "more than 64 levels deep"),
    (b'{"a":' * 1_000_000, "deep"),
    (b'{"a": [' + b"[]," * 1_000_001 + b"1]}", "values"),
]


@pytest.mark.parametrize(("raw", "text"), RAW, ids=[f"{raw[:20]!r}" for raw, _ in RAW])
@pytest.mark.parametrize("path", ["/evaluate", "/batch"])
def test_bodies_that_are_no_json_object(client: FlaskClient, path: str, raw: bytes, text: str) -> None:
    answer = client.post(path, data=raw, content_type="application/json")
    assert (answer.status_code, answer.content_type) == (400, "application/problem+json")
    assert text in answer.get_json()["error"]


@pytest.mark.parametrize("comment", ["", "#", "##"])
def test_a_source_in_base64(client: FlaskClient, comment: str) -> None:
    encoded = base64.encodebytes(f"{RELU}{comment}".encode()).decode()
    problem = refuse(client, "/evaluate", {"kernel": kernel(encoded, "torch")})
    assert problem["error"] == "kernel -> source_code: is encoded as base64; send the text itself"


@pytest.mark.parametrize("source", ["pass\n" * 1000, " " * (1 << 19) + "-", "import torch\nimport numpy"])
def test_a_source_of_few_characters_is_no_base64(client: FlaskClient, source: str) -> None:
    assert client.post("/evaluate", json={"kernel": kernel(source, "torch")}).status_code == 202


def test_brackets_inside_strings_are_not_depth(client: FlaskClient) -> None:
    code = kernel('s = "\\"" + "[' + "[{" * 500 + '"', "torch")
    assert client.post("/evaluate", json={"kernel": code}).status_code == 202


def test_a_body_that_says_it_is_something_else(client: FlaskClient) -> None:
    answer = client.post("/evaluate", data=b"<kernel/>", content_type="application/xml")
    assert (answer.status_code, answer.content_type) == (415, "application/problem+json")
    assert "application/json" in answer.get_json()["detail"]


def test_a_body_over_the_cap(client: FlaskClient) -> None:
    raw = json.dumps({"kernel": GOOD, "padding": "x" * (64 << 20)}).encode()
    answer = client.post("/evaluate", data=raw, content_type="application/json")
    assert (answer.status_code, answer.content_type) == (413, "application/problem+json")
    assert "64 MiB" in answer.get_json()["error"]


@pytest.mark.parametrize("wait", ["soon", "-1", "601", "nan", "inf", ""])
def test_wait_out_of_bounds(client: FlaskClient, records: JobStore, wait: str) -> None:
    answer = client.post(f"/evaluate?wait={wait}", json={"kernel": GOOD})
    assert (answer.status_code, answer.content_type) == (400, "application/problem+json")
    assert "wait: must be" in answer.get_json()["error"]
    assert records.queue_length() == 0


def test_an_unknown_path_is_a_page_in_a_browser(client: FlaskClient) -> None:
    answer = client.get("/report", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.content_type) == (404, "text/html; charset=utf-8")
    assert "there is no" in answer.text and 'href="/"' in answer.text


def test_a_comparison_of_one_kernel_is_sent_to_evaluate(client: FlaskClient) -> None:
    error = client.post("/compare", json={"kernel": {"kernel_type": "torch", "source_code": "x"}}).get_json()["error"]
    assert error.startswith("custom_kernel: is missing; a body with one kernel goes to /evaluate")


def test_unknown_routes_and_methods(client: FlaskClient) -> None:
    for answer, status in ((client.get("/nowhere"), 404), (client.get("/evaluate"), 405), (client.put("/job/x"), 405)):
        assert (answer.status_code, answer.content_type) == (status, "application/problem+json")
        problem = answer.get_json()
        assert problem["status"] == status
        assert problem["error"] == problem["detail"]
    assert "POST" in client.get("/evaluate").headers["Allow"]
    assert client.get("/jobs/3f2a/report").get_json()["error"].endswith("did you mean `/job/3f2a/report`?")
    error = client.get("/evaluate").get_json()["error"]
    assert error == f"GET is not allowed for /evaluate; allowed: {client.get('/evaluate').headers['Allow']}"


@pytest.mark.parametrize("every_s", [None, 0.02])
def test_a_body_that_is_not_sent_whole_is_given_up(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch, every_s: float | None
) -> None:
    """Also where something comes all the time: the body as a whole has its time."""
    monkeypatch.setattr(connections, "BODY_S", 0.2)
    theirs, other = socket.socketpair()
    ended = Event()

    def trickle() -> None:
        while every_s is not None and not ended.wait(every_s):
            theirs.sendall(b" ")

    ours = connections.PatientSocket(fileno=other.detach())
    sender = Thread(target=trickle)
    with theirs, ours:
        theirs.sendall(b'{"kernel": ')
        ours.begin(time.monotonic(), 0)
        sender.start()
        sent = {"wsgi.input": Body(LengthReader(SocketUnreader(ours), 500)), "wsgi.input_terminated": True}
        answer = client.post("/evaluate", environ_overrides={**sent, "CONTENT_LENGTH": "500"}, content_type=JSON)
        ended.set()
        sender.join()
        assert ours.gettimeout() is None
    assert (answer.status_code, answer.content_type) == (408, "application/problem+json")
    assert answer.get_json()["type"] == "urn:kernel-eval:problem:body-late"
    assert answer.headers["Connection"] == "close"
