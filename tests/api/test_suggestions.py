"""What a request was probably meant to be: names of fields and parameters, values, and the type of a source."""

from __future__ import annotations

import time
from typing import Any

import pytest
from flask.testing import FlaskClient

from api.schemas.suggestions import similar_name, similar_value
from tests.api.payloads import CUDA_ADD, RELU, TRITON_ADD, kernel, tensor

Json = dict[str, Any]


def problem(client: FlaskClient, path: str, body: Any, method: str = "POST") -> Json:
    answer = client.open(path, method=method, json=body) if body is not None else client.open(path, method=method)
    assert answer.status_code == 400, answer.get_json()
    found: Json = answer.get_json()
    return found


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/evaluate", {"kernel": {"source": RELU, "kernel_type": "torch"}}, "did you mean `source_code`?"),
        ("/evaluate", {"kernel": {"code": RELU, "type": "torch"}}, "did you mean `kernel_type`?"),
        ("/evaluate", {"kernel": {"code": RELU, "type": "torch"}}, "did you mean it by `code`?"),
        ("/evaluate", {"source_code": RELU}, "kernel: is missing; it is required: an object with `source_code` and"),
        ("/evaluate", {"spec": {}, "sources": []}, "an object with `source_code` and `kernel_type`; `sources` belongs"),
        ("/evaluate", {"kernel": RELU}, "kernel: must be a JSON object with `source_code` and `kernel_type`"),
        ("/evaluate", {"custom_kernel": kernel(RELU, "torch")}, "did you mean it by `custom_kernel`?"),
        (
            "/compare",
            {"reference": 1, "candidate": 2},
            "ref_kernel: is missing; it is required; did you mean it by `r",
        ),
        ("/compare", {"reference": 1, "candidate": 2}, "did you mean it by `candidate`?"),
        ("/compare", {"ref_kernel": 1, "custom_kernal": 2}, "did you mean it by `custom_kernal`?"),
        ("/evaluate", {"kernel": {**kernel(RELU, "torch"), "compiler_options": []}}, "put it into `metadata`"),
        ("/evaluate", {"kernel": {**kernel(CUDA_ADD, "cuda"), "io_contract": {}}}, "did you mean `io`?"),
        ("/evaluate", {"kernel": kernel(RELU, "pytorch")}, "not 'pytorch'; did you mean `torch`?"),
        ("/evaluate", {"kernel": kernel(CUDA_ADD, "CUDA")}, "not 'CUDA'; did you mean `cuda`?"),
        ("/evaluate", {"kernel": kernel(CUDA_ADD, "cuda", [tensor("x", [4], dtype="fp32")])}, "mean `float32`?"),
        ("/evaluate", {"kernel": kernel(CUDA_ADD, "cuda", [tensor("x", [4], dtype="torch.half")])}, "mean `float16`?"),
        ("/evaluate", {"kernel": kernel(RELU, "torch"), "budget": "fast"}, "did you mean `quick`?"),
        ("/evaluate", {"kernel": kernel(RELU, "torch"), "budget": "quik"}, "did you mean `quick`?"),
        ("/evaluate", {"kernel": kernel(TRITON_ADD, "tritn")}, "did you mean `triton`?"),
        ("/evaluate", {"kernel": kernel(CUDA_ADD, "cuda", [tensor("x", [4], dtype="flaot32")])}, "mean `float32`?"),
        ("/evaluate", {"kernel": kernel("kernels/relu.py", "torch")}, "is the name of a file; send the file's text"),
        ("/evaluate", {"kernel": kernel(RELU, "torch"), "webhook": "https://a.example"}, 'such as {"url": '),
        ("/batch", [{"kernel": kernel(RELU, "torch")}], 'or several requests to /batch as {"jobs": […]}'),
        ("/evaluate", {"kernel": kernel(CUDA_ADD, "cudnn")}, "this looks like CUDA C++: send it as `cuda`"),
        ("/evaluate", {"kernel": {"source_code": TRITON_ADD}}, "this looks like Triton: send it as `triton`"),
        ("/evaluate", {"kernel": kernel(RELU, "cuda")}, "kernel -> kernel_type: this looks like PyTorch: send it as"),
        ("/evaluate", {"kernel": kernel(CUDA_ADD, "multi_kernel")}, "metadata -> entry_point: is missing"),
        (
            "/evaluate",
            {"kernel": kernel(f"{TRITON_ADD}\ndef add(x, y): ...\ndef other(x): ...", "triton")},
            "call that function kernel_fn",
        ),
        (
            "/evaluate",
            {"kernel": kernel(CUDA_ADD, "cuda", [{"name": "x", "type": "tensor", "shape": [4]}])},
            "`shape` belongs into it",
        ),
        ("/evaluate?wiat=60", {"kernel": kernel(RELU, "torch")}, "there are: wait; did you mean `wait`?"),
    ],
)
def test_what_was_meant_is_said(client: FlaskClient, path: str, body: Json, says: str) -> None:
    found = problem(client, path, body)
    assert says in found["detail"]
    assert found["next"].startswith("Correct ") and found["next"].endswith(" again.")


def test_a_query_is_refused_whose_parameters_mean_nothing(client: FlaskClient) -> None:
    assert "virdict: is no query parameter here" in problem(client, "/jobs?virdict=passed", None, "GET")["detail"]
    assert "did you mean `completed`?" in problem(client, "/jobs?state=done", None, "GET")["detail"]
    for query, meant in (("state=complted", "completed"), ("verdict=pased", "passed"), ("kernel_type=cud", "cuda")):
        assert f"did you mean `{meant}`?" in problem(client, f"/jobs?{query}", None, "GET")["detail"]
    many = problem(client, "/jobs?" + "&".join(f"p{n}=1" for n in range(2000)), None, "GET")
    assert len(many["errors"]) == 8
    assert client.get("/job/nosuch/report?utm_source=mail").status_code == 404, "a page's link may have any"


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/jobz", "/jobs"),
        ("/evalute", "/evaluate"),
        ("/api/v1/jobs", "/jobs"),
        ("/healthz", "/health"),
        ("/zzz", None),
        ("/job/3f2a/result", "/job/3f2a"),
        ("/status/3f2a", "/job/3f2a"),
    ],
)
def test_an_unknown_path_names_the_one_that_it_looks_like(client: FlaskClient, path: str, meant: str | None) -> None:
    answer = client.get(path)
    question = f"; did you mean `{meant}`?" if meant else "lists all paths"
    assert answer.status_code == 404 and answer.get_json()["detail"].endswith(question)


def test_the_types_of_errors_stay(client: FlaskClient) -> None:
    errors = problem(client, "/evaluate", {"kernel": {"code": RELU, "kernel_type": "torch"}})["validation_errors"]
    assert {each["field"]: each["type"] for each in errors} == {
        "kernel -> source_code": "missing",
        "kernel -> code": "extra_forbidden",
    }


def test_what_looks_like_nothing_gets_no_suggestion() -> None:
    assert similar_name("zzz", ["source_code", "io"]) is None and similar_name("x" * 100, ["io"]) is None
    assert similar_value("int3", ["int8"]) is None and similar_value(3, ["int8"]) is None
    assert similar_value("float8", ["float64"]) is None, "other digits are another value, not a misspelt one"
    assert similar_name("num_trails", ["num_trials"]) == "num_trials"


def test_many_errors_take_little_time_each(client: FlaskClient) -> None:
    """Values are looked up, and few names of an object are compared: the time follows the size of the body."""
    args = [tensor(f"x{n}", [4], dtype="floatt8_e4m3xn") for n in range(256)]
    names = {f"nmae{n}": 1 for n in range(90)}
    began = time.process_time()
    bodies = [{"kernel": kernel(CUDA_ADD, "cuda", args)} for _ in range(40)]
    refused = client.post("/batch", json={"jobs": bodies}).get_json()
    assert refused["refused"] == 40 and "did you mean `float8_e4m3fn`?" in str(refused)
    bodies = [{"kernel": {**kernel(RELU, "torch"), **names}} for _ in range(1000)]
    assert client.post("/batch", json={"jobs": bodies}).get_json()["refused"] == 1000
    assert time.process_time() - began < 60.0, "seconds of work, where a comparison of each would take minutes"


@pytest.mark.parametrize("functions", [["f); } int g = (1"], ["a b"], [""], [7]])
def test_a_function_to_bind_is_a_name_and_no_other_code(client: FlaskClient, functions: Any) -> None:
    sent = {"kernel_type": "torch_cuda", "source_code": "#include <torch/extension.h>\n", "metadata": {}}
    refused = problem(client, "/evaluate", {"kernel": {**sent, "metadata": {"functions": functions}}})
    assert "kernel -> metadata -> functions: must be" in refused["detail"]
    sent["metadata"] = {"functions": ["forward", "ops::forward"]}
    assert client.post("/evaluate", json={"kernel": sent}).status_code == 202
