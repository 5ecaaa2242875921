"""`python -m benchmarks.recovery`: how soon the next job runs after one that kills its runner.

The benchmark sends the next job while the deadly one runs. The next job runs once it enters `validate`: its runner has
context and code, and its first call begins. Times count from the recorded end of the deadly job and may be negative.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import Any

import httpx
from rich.table import Table

from benchmarks import jobs
from benchmarks.overhead import BenchmarkError, job_of, submitted
from domain.job import TERMINAL, Stage
from domain.settings import settings
from stack.local_stack import Stack, running
from stack.redis_server import free_port
from stack.shutdown import stop_on_signals
from stack.terminal import Terminal

WARM_UPS = 12
DEADLINE_S = 5
LIMIT_S = 1.0
"""Maximum delay of the next job, in s, in every round; otherwise the exit status is 1."""

INPUTS = "\ndef get_inputs():\n    return [torch.randn(256, 256)]\n"
FORWARD = "class Model(nn.Module):\n    def forward(self, x):\n        "
STRAY = "#include <cstdint>\n__global__ void stray(float* x) { x[(1ll << 40) + threadIdx.x] = 1.0f; }\n"
STRAY_IO = {
    "args": [{"name": "x", "type": "tensor", "role": "inout", "tensor_spec": {"shape": [256], "dtype": "float32"}}]
}
DEADLY: dict[str, tuple[dict[str, Any], str]] = {
    "segfault": ({"source_code": f"import ctypes\n{FORWARD}ctypes.string_at(0){INPUTS}"}, "crashed"),
    "loop of the host": ({"source_code": f"{FORWARD}while True: pass{INPUTS}"}, "timeout"),
}
DEADLY_ON_A_GPU: dict[str, tuple[dict[str, Any], str]] = {
    "loop of the device": (
        {"source_code": f"{FORWARD}torch.cuda._sleep(1 << 60)\n        return x{INPUTS}"},
        "timeout",
    ),
    "illegal address": ({"source_code": STRAY, "kernel_type": "cuda", "io": STRAY_IO}, "runtime_error"),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    stop_on_signals()
    own = dataclasses.replace(settings().private(), port=free_port())
    late = False
    table = Table("deadly job", "the next is at work after, s", "ends after, s")
    with running(own) as stack, httpx.Client(base_url=stack.url, timeout=60, trust_env=False) as client:
        # At once, so that each process of the pool gets one: its first job takes seconds.
        for job_id in [submitted(client, jobs.tiny()) for _ in range(WARM_UPS)]:
            _ended(stack, client, job_id)
        for name, (kernel, verdict) in (DEADLY | (DEADLY_ON_A_GPU if stack.gpus else {})).items():
            delays = [_recovered(stack, client, {"kernel_type": "torch"} | kernel, verdict) for _ in range(rounds)]
            late |= max(at_work for at_work, _ in delays) > LIMIT_S
            table.add_row(name, *(" ".join(f"{each:.2f}" for each in column) for column in zip(*delays, strict=True)))
    Terminal(columns=120).print(table)
    return 1 if late else 0


def _recovered(stack: Stack, client: httpx.Client, kernel: dict[str, Any], verdict: str) -> tuple[float, float]:
    deadly = submitted(client, {"kernel": kernel, "timeout": DEADLINE_S})
    stack.wait_until(lambda: _at(job_of(client, deadly), Stage.VALIDATE) is not None, "the deadly job")
    following = _ended(stack, client, submitted(client, jobs.tiny()))
    job = _ended(stack, client, deadly)
    if job["result"]["verdict"] != verdict or following["result"]["verdict"] != "passed":
        raise BenchmarkError(f"{job['result']['verdict']} and {following['result']['verdict']}")
    over, at_work, done = _at(job, Stage.DONE), _at(following, Stage.VALIDATE), _at(following, Stage.DONE)
    if over is None or at_work is None or done is None:
        raise BenchmarkError(f"stages are missing: {job['timeline']}, {following['timeline']}")
    return at_work - over, done - over


def _at(job: dict[str, Any], stage: Stage) -> float | None:
    return next((float(step["at"]) for step in job["timeline"] if step["stage"] == stage), None)


def _ended(stack: Stack, client: httpx.Client, job_id: str) -> dict[str, Any]:
    stack.wait_until(lambda: job_of(client, job_id)["state"] in TERMINAL, "a job's end")
    return job_of(client, job_id)


if __name__ == "__main__":
    sys.exit(main())
