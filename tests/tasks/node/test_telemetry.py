"""An endpoint for traces without the packages that send them: the process says so and does not start."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from domain.paths import ROOT

WORKER = "from tasks.worker.lifecycle import load_telemetry; load_telemetry()"
API = (
    "from gunicorn.app.wsgiapp import run; "
    "sys.argv = ['gunicorn', '--config', 'python:api.gunicorn_config', 'api:create_app()']; run()"
)


def without_packages(start: str, endpoint: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules['opentelemetry'] = None; {start}"],
        cwd=ROOT,
        env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("start", [WORKER, API], ids=["worker", "api"])
def test_an_endpoint_without_the_packages_stops_the_process(start: str) -> None:
    done = without_packages(start, "http://127.0.0.1:9")
    assert done.returncode == 1 and "--group telemetry" in done.stderr and "Traceback" not in done.stderr


def test_without_an_endpoint_no_package_is_needed() -> None:
    assert without_packages(WORKER, "").returncode == 0
