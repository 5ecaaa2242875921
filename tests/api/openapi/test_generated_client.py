"""A client that openapi-python-client makes of the document submits, polls, compares and reads in its own types."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from apiflask import APIFlask
from flask.testing import FlaskClient

from tasks.jobs.job_store import JobStore
from tests.api import results

pytest.importorskip("openapi_python_client", reason="pip install -c constraints.txt --group generator")
CONFIG = "post_hooks: []\npackage_name_override: generated_client\n"


def test_a_generated_client_runs_the_tour(
    app: APIFlask, client: FlaskClient, records: JobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document, config, made = tmp_path / "openapi.json", tmp_path / "config.yml", tmp_path / "made"
    document.write_text(json.dumps(client.get("/openapi.json").get_json()))
    config.write_text(CONFIG)
    options = ["--path", str(document), "--config", str(config), "--output-path", str(made), "--fail-on-warning"]
    command = [sys.executable, "-m", "openapi_python_client", "generate", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.syspath_prepend(str(made))
    models = importlib.import_module("generated_client.models")

    def endpoint(name: str):
        return importlib.import_module(f"generated_client.api.{name}")

    service = importlib.import_module("generated_client").Client(base_url="http://localhost")
    transport = httpx.WSGITransport(app=app)
    service.set_httpx_client(httpx.Client(base_url="http://localhost", transport=transport))

    def kernel(source: str):
        return models.Kernel(source_code=source, kernel_type=models.KernelKernelType.TORCH)

    one = models.Evaluate(kernel=kernel("def kernel_fn(x):\n    return x"))
    two = models.Compare(ref_kernel=one.kernel, custom_kernel=kernel("def kernel_fn(x):\n    return x * 1"))
    assert isinstance(endpoint("submissions.post_submissions_evaluate").sync(client=service, body=one), models.Job)
    job = endpoint("submissions.post_submissions_compare").sync(client=service, body=two)
    claims = [records.claim("gpu0@node") for _ in range(2)]
    assert [claim and claim.job_id for claim in claims][1] == job.job_id
    records.complete(job.job_id, 1, results.passed(2.0))
    ended = endpoint("jobs.get_jobs_read").sync(client=service, job_id=job.job_id)
    assert ended.state == models.JobState.COMPLETED and isinstance(ended.result, models.Result)
    assert ended.result.kernel_exec_result.correctness is True
    assert (ended.result.speedup.ratio, ended.summary.ratio) == (2.0, 2.0)
    batch = models.Batch(jobs=[one, two, models.Evaluate(kernel=one.kernel, num_trials=0)])
    accepted = endpoint("submissions.post_submissions_batch").sync(client=service, body=batch)
    assert (accepted.accepted, accepted.refused) == (2, 1)
    assert isinstance(accepted.jobs[2].problem, models.Problem)
    assert len(endpoint("jobs.get_batches_read").sync(client=service, batch_id=accepted.batch_id).jobs) == 2
    listed = endpoint("jobs.get_jobs_listing").sync(client=service, limit=1)
    assert isinstance(listed.jobs[0], models.JobSummary) and listed.next_cursor
    page = endpoint("jobs.get_report_report").sync(client=service, job_id=job.job_id)
    assert page.startswith("<!doctype html>")
