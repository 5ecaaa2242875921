"""What everybody does without a service: a fresh interpreter for each job, which imports, compares, times and ends."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from benchmarks.latency import Latency

TRIALS, WARM_UPS = 100, 3
TOLERANCE = 1e-2
JOB_S = 120.0


def baseline(bodies: list[dict[str, Any]], within_s: float) -> Latency:
    """Each comparison by itself, one after the other, from the start of its interpreter to its verdict.

    As many as fit into `within_s`, and one at least.
    """
    samples: list[float] = []
    over = time.perf_counter() + within_s
    for body in bodies:
        if samples and time.perf_counter() > over:
            break
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.baseline"],
            input=json.dumps(body),
            capture_output=True,
            text=True,
            timeout=JOB_S,
            check=True,
        )
        samples.append(time.perf_counter() - began)
        if not json.loads(done.stdout)["correct"]:
            raise RuntimeError(f"a kernel that is right was found wrong: {done.stderr}")
    return Latency.of(samples)


def judge(body: dict[str, Any]) -> dict[str, Any]:
    """As the usual scripts do it: everything in one process, the clock around each call."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"

    def load(source: str, name: str) -> tuple[Any, Any]:
        names: dict[str, Any] = {"torch": torch, "nn": torch.nn}
        exec(source, names)
        return names[name]().to(device), names.get("get_inputs")

    reference, get_inputs = load(body["ref_kernel"]["source_code"], "Model")
    candidate, _ = load(body["custom_kernel"]["source_code"], "ModelNew")
    inputs = [each.to(device) for each in get_inputs()]
    correct = torch.allclose(reference(*inputs), candidate(*inputs), atol=TOLERANCE, rtol=TOLERANCE)
    times = {}
    for name, model in (("reference", reference), ("candidate", candidate)):
        for _ in range(WARM_UPS):
            model(*inputs)
        spent = 0.0
        for _ in range(TRIALS):
            began = time.perf_counter()
            model(*inputs)
            if device == "cuda":
                torch.cuda.synchronize()
            spent += time.perf_counter() - began
        times[name] = 1e3 * spent / TRIALS
    return {"correct": bool(correct), "ms": times}


if __name__ == "__main__":
    print(json.dumps(judge(json.load(sys.stdin))))
