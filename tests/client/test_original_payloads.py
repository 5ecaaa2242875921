"""The kinds of request that the original's test data has work: by its own client's calls, and in its first body."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from kernel_eval_client import KernelEvalClient
from tests.client.original_payloads import CUSTOM_CODE, PAYLOADS, REF_CODE

SIDE, SMALL_SIDE = 1024, 64
"""Of the square ones; in Triton's interpreter the large ones would take minutes."""


def judged(url: str, body: dict[str, Any]) -> Any:
    with KernelEvalClient(url, timeout=body.get("timeout", 120)) as client:
        return client.compare(body["ref_kernel"], body["custom_kernel"], num_trials=body["num_trials"])


@pytest.mark.parametrize("name", [name for name in PAYLOADS if name.startswith("cuda/")])
def test_raw_cuda_is_compiled_without_a_card(url: str, name: str) -> None:
    answer = judged(url, PAYLOADS[name](SIDE))
    assert answer.verdict == "unsupported", answer.kernel_exec_result.validation_error
    assert answer["kernel_exec_result"]["compiled"] is True
    assert "compiled for sm_" in answer.kernel_exec_result.validation_error


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PAYLOADS if name.startswith("triton/")])
def test_triton_is_right_in_its_interpreter(url: str, name: str) -> None:
    answer = judged(url, PAYLOADS[name](SMALL_SIDE))
    assert answer.verdict == "passed", answer.kernel_exec_result.validation_error
    assert answer.kernel_exec_result.correctness and answer.kernel_exec_result.runtime > 0
    assert answer.ref_runtime.mean > 0 and answer["ref_runtime"]["percentile_99"] > 0


def test_one_of_them_in_every_run(url: str) -> None:
    answer = judged(url, PAYLOADS["triton/torch_triton_add"](SMALL_SIDE))
    assert answer.verdict == "passed", answer.kernel_exec_result.validation_error


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize("path", ["/", "/compare"])
def test_the_first_body_is_taken(url: str, path: str) -> None:
    # Building an extension takes a busy processor longer than that body's 30 s.
    body = {"ref_code": REF_CODE, "custom_code": CUSTOM_CODE, "num_trials": 10, "timeout": 300}
    answer = httpx.post(f"{url}{path}", params={"wait": 600}, json=body, timeout=650)
    assert answer.status_code == 200
    found = answer.json()
    assert found["kernel_exec_result"]["metadata"]["kernel_type"] == "torch_cuda"
    assert found["verdict"] in ("unsupported", "passed"), found["kernel_exec_result"]


@pytest.mark.gpu
@pytest.mark.parametrize("name", PAYLOADS)
def test_all_are_right_and_timed_on_a_gpu(gpu_url: str, name: str) -> None:
    answer = judged(gpu_url, PAYLOADS[name](SIDE))
    assert answer.verdict == "passed", answer.kernel_exec_result.validation_error
    assert answer.kernel_exec_result.runtime > 0 and answer.ref_runtime.mean > 0


@pytest.mark.gpu
def test_the_pair_of_python_files_is_right_on_a_gpu(gpu_url: str) -> None:
    body = {"ref_code": REF_CODE, "custom_code": CUSTOM_CODE, "num_trials": 100, "timeout": 300}
    found = httpx.post(f"{gpu_url}/", params={"wait": 400}, json=body, timeout=500).json()
    assert found["verdict"] == "passed", found["kernel_exec_result"]
    assert found["kernel_exec_result"]["runtime"] > 0 and found["ref_runtime"]["mean"] > 0
