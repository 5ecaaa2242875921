"""The client against the real service on the CPU: verdicts, jobs, errors, the original's calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_eval_client import (
    AsyncClient,
    Client,
    KernelEvalClient,
    Result,
    Submission,
    contract_from,
    cuda,
    errors,
    torch,
)
from kernel_eval_client.result import ResponseError

TWICE = torch(
    "import torch\n\ndef kernel_fn(x):\n    return x * 2\n\ndef get_inputs():\n    return [torch.randn(64)]\n"
)
WRONG = torch("def kernel_fn(x):\n    return x * 3\n")
HANGS = torch("def kernel_fn(x):\n    while True:\n        pass\n\ndef get_inputs():\n    return [1]\n")
UNBALANCED = torch("def kernel_fn(x:\n    return x\n")


SLOW, FAST = (
    torch(TWICE.source_code.replace("return x", f"__import__('time').sleep({s})\n    return x")) for s in (0.03, 0.003)
)


@pytest.fixture(scope="module")
def compared(url: str) -> Iterator[Result]:
    """A comparison that passes, of kernels whose times differ on the busiest machine."""
    with Client(url) as client:
        yield client.compare(SLOW, FAST, num_trials=6, target_precision=0.5)


def test_a_comparison_is_typed(compared: Result) -> None:
    assert compared.passed and compared.error is None
    assert compared.explanation is not None and compared.explanation.startswith(
        "It compiles, and its outputs are right"
    )
    assert compared.report == f"/job/{compared.job_id}/report"
    assert compared.kernel.timing is not None and compared.reference is not None
    assert compared.runtime_ms == compared.kernel.timing.stats.mean > 0
    assert compared.kernel.comparison is not None and compared.kernel.comparison.mismatch_count == 0
    assert compared.speedup is not None and compared.speedup.ci_low <= compared.speedup.ratio
    assert compared.speedup.verdict == "faster"
    assert [vars(flag) for flag in compared.flags] == compared.raw[
        "flags"
    ] and compared.speedup_unavailable_reason is None


def test_no_part_of_an_answer_is_lost(compared: Result) -> None:
    for typed, wire in (
        (compared.kernel.timing, compared.raw["kernel_exec_result"]["timing"]),
        (compared.kernel.comparison, compared.raw["kernel_exec_result"]["comparison"]),
        (compared.speedup, compared.raw["speedup"]),
    ):
        assert set(wire) <= set(vars(typed)), "a new member of the answer: give it a field"


def test_a_result_saves_and_loads(compared: Result, tmp_path: Path) -> None:
    compared.save(tmp_path / "result.json")
    assert Result.load(tmp_path / "result.json") == compared
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ResponseError):
        Result.load(tmp_path / "other.json")


def test_a_row_is_flat_and_always_has_the_same_columns(compared: Result, client: Client) -> None:
    failed = client.evaluate(UNBALANCED)
    rows = [compared.to_dict(), failed.to_dict()]
    assert list(rows[0]) == list(rows[1])
    assert all(value is None or isinstance(value, (bool, int, float, str)) for row in rows for value in row.values())
    assert json.loads(json.dumps(rows)) == rows
    assert (rows[0]["speedup"], rows[1]["runtime_ms"], rows[1]["verdict"]) == (
        compared.speedup and compared.speedup.measured,
        None,
        "compile_error",
    )


def test_a_kernel_that_fails_is_a_result(client: Client) -> None:
    wrong = client.compare(TWICE, WRONG)
    assert wrong.verdict == "wrong_result" and not wrong.passed
    assert wrong.error is not None and "tolerance" in wrong.error
    assert wrong.runtime_ms is None


def test_many_at_once(client: Client) -> None:
    kernels = [UNBALANCED, TWICE, torch("import nosuch"), UNBALANCED]
    submissions = [Submission(kernel, num_trials=6, target_precision=0.5) for kernel in kernels]
    found = {each.index: each.result for each in client.map(submissions, concurrency=3)}
    assert {index: result.verdict for index, result in found.items() if result} == {
        0: "compile_error",
        1: "passed",
        2: "compile_error",
        3: "compile_error",
    }


def test_live_arguments_reach_the_kernel(client: Client) -> None:
    import numpy as np

    x = np.arange(6, dtype=np.float32).reshape(2, 3).T
    expected = x.tolist()
    source = f"def kernel_fn(x, n):\n    assert x.tolist() == {expected} and n == 7, (x, n)\n    return x * n\n"
    result = client.evaluate(
        torch(source, io=contract_from({"x": x, "n": 7}, inline=["x"])), num_trials=6, target_precision=0.5
    )
    assert result.verdict == "passed", result.error


def test_a_job_is_followed_listed_and_cancelled(client: Client) -> None:
    job = client.submit(Submission(HANGS, timeout=60))
    assert not job.done and job.result is None
    with pytest.raises(errors.StillRunning, match=job.job_id):
        client.wait(job.job_id, max_wait_s=0.1)
    assert job.job_id in {each.job_id for each in client.jobs(limit=5)}
    assert client.cancel(job.job_id, wait_s=30).state == "cancelled"
    with pytest.raises(errors.JobCancelled):
        client.wait(job.job_id)
    assert client.wait_for_job(job.job_id).state == "cancelled"


def test_listing_goes_over_pages(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        client.submit(UNBALANCED)
    monkeypatch.setattr("kernel_eval_client.pages.PAGE", 2)

    async def listed() -> list[str]:
        async with AsyncClient(client.address.url) as asynchronous:
            return [job.job_id async for job in asynchronous.jobs(limit=3)]

    found = [job.job_id for job in client.jobs(limit=3)]
    assert len(set(found)) == 3
    assert asyncio.run(listed()) == found
    assert len(list(client.jobs(limit=0))) == 0


def test_a_request_at_fault_is_told_field_by_field(client: Client) -> None:
    with pytest.raises(errors.CallerError) as raised:
        client.evaluate(cuda("__global__ void k() {}", {"args": [{"name": "x"}]}), num_trials=0)  # type: ignore[arg-type]
    assert {error.path for error in raised.value.fields} == {("kernel", "io", "args", 0, "type"), ("num_trials",)}
    assert "kernel.io.args.0.type: is missing; it is required" in {str(error) for error in raised.value.fields}


def test_an_unknown_job_is_said(client: Client) -> None:
    with pytest.raises(errors.UnknownJob, match="nosuch"):
        client.job("nosuch")


def test_the_service_is_asked_about_itself(client: Client) -> None:
    assert client.health()["status"] == "healthy"
    assert client.stats()["jobs_submitted"] > 0
    assert client.document()["info"]["version"]
    assert client.cleanup_jobs()["status"] == "cleanup_completed"


def test_the_originals_calls(url: str) -> None:
    with KernelEvalClient(url, timeout=60) as original:
        answer = original.evaluate(TWICE, num_trials=6)
        assert answer.kernel_exec_result.runtime_stats.mean == answer["kernel_exec_result"]["runtime"] > 0
        wire = {"source_code": TWICE.source_code, "kernel_type": "torch"}
        compared = original.compare(wire, FAST, num_trials=6, atol=0.1)
        assert compared["status"] == "success" and compared.ref_runtime["mean"] > 0
        assert original.get_job_status(answer.job_id).status == "completed"
        assert original.health_check().status == "healthy"
        assert original.get_stats().job_stats["total_jobs"] > 0
        assert original.cleanup_jobs() == {"status": "cleanup_completed", "removed": 0}
        with pytest.raises(AttributeError, match="it has: job_id"):
            _ = answer.nosuch
