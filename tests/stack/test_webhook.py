"""A webhook through the whole service: told again after the receiver, and the server, have been away."""

from __future__ import annotations

import json
import signal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest

from tests.child_processes import command_line
from tests.stack.serving import READY_S, serve, wait_for

TELL_S = 60.0


class Receiver(HTTPServer):
    """Answers 503 until it is well."""

    well = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.told: list[tuple[int, str]] = []


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = 200 if self.server.well else 503
        self.server.told.append((status, told["job_id"]))
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.mark.slow
def test_a_job_is_told_of_although_receiver_and_server_were_away(tmp_path: Path) -> None:
    receiver = Receiver()
    thread = Thread(target=receiver.serve_forever, args=(0.02,))
    thread.start()
    host = f"127.0.0.1:{receiver.server_port}"
    try:
        with serve(tmp_path, GPU_DEVICE="cpu", MAX_WORKERS="1", WEBHOOK_HOSTS=host) as serving:
            wait_for(serving.ready, READY_S, "it is ready")
            kernel = {"source_code": "def kernel_fn(x):\n    return x * 2\n", "kernel_type": "torch"}
            body = {"kernel": kernel, "num_trials": 1, "webhook": {"url": f"http://{host}/"}}
            job_id = httpx.post(f"{serving.url}/evaluate?wait=60", json=body, timeout=90).json()["job_id"]
            wait_for(lambda: tries(serving.job(job_id)) == 1, TELL_S, "it was tried")
            servers = [each for each in serving.descendants() if "api.gunicorn_config" in " ".join(command_line(each))]
            assert servers
            for process in servers:
                process.send_signal(signal.SIGKILL)
            receiver.well = True
            wait_for(lambda: (200, job_id) in receiver.told, TELL_S, "it was told")
            wait_for(lambda: state(serving.job(job_id)) == "delivered", TELL_S, "the job says so")
    finally:
        receiver.shutdown()
        thread.join()
        receiver.server_close()


def tries(job: dict[str, object]) -> int:
    webhook = job.get("webhook")
    return int(webhook["attempts"]) if isinstance(webhook, dict) else 0


def state(job: dict[str, object]) -> str | None:
    webhook = job.get("webhook")
    return str(webhook["state"]) if isinstance(webhook, dict) else None
