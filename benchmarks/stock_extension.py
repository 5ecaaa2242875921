"""Judges an inline extension without a service: builds it as torch does, calls it, times it and ends.

Source on standard input, JSON on standard output, for `benchmarks.extension_stream`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

JOB_S = 300.0
WARM_UPS, TRIALS = 3, 100


@dataclass(frozen=True)
class Stock:
    """Seconds from start to end of the interpreter, and seconds for which it needed the device."""

    seconds: float
    device_s: float


def judged(source: str) -> Stock:
    """Judges the source in a fresh interpreter, without earlier builds."""
    with tempfile.TemporaryDirectory() as builds:
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.stock_extension"],
            input=source,
            env={**os.environ, "TORCH_EXTENSIONS_DIR": builds},  # noqa: TID251 - handed on
            capture_output=True,
            text=True,
            timeout=JOB_S,
            check=False,
        )
        seconds = time.perf_counter() - began
    if done.returncode != 0:
        raise RuntimeError(f"an extension that is right failed: {done.stderr[-4000:]}")
    return Stock(seconds, json.loads(done.stdout.splitlines()[-1])["device_s"])


def judge(source: str) -> dict[str, Any]:
    """Judges in one process and waits for each call; the device is needed from the construction of the class."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    names: dict[str, Any] = {}
    exec(source, names)
    began = time.perf_counter()
    model = names["ModelNew"]().to(device)
    inputs = [each.to(device) if isinstance(each, torch.Tensor) else each for each in names["get_inputs"]()]
    for _ in range(WARM_UPS + TRIALS):
        model(*inputs)
        if device == "cuda":
            torch.cuda.synchronize()
    return {"device_s": time.perf_counter() - began}


if __name__ == "__main__":
    answer = judge(sys.stdin.read())
    print()
    print(json.dumps(answer))
