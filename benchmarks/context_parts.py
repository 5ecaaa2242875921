"""`python -m benchmarks.context_parts`: what of the making of a runner's context takes how long, in a fresh process.

Each process is forked from one that has imported PyTorch and nothing of CUDA, as a runner is from its zygote, and goes
through what a standby goes through, one step after the other; its end is the last. In turn: as it is, and with each of
the driver's settings that may make it shorter.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console

from backends.backend import Target
from benchmarks.timing import Rows
from sandbox.launch_count import counted_launches
from sandbox.launch_latency import launch_times_ms

DEVICE, CONTROL = "cuda", "/dev/nvidiactl"
SETTINGS: dict[str, dict[str, str]] = {
    "as it is": {},
    "1 connection": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    "1 of each": {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "CUDA_DEVICE_MAX_COPY_CONNECTIONS": "1"},
    "modules at once": {"CUDA_MODULE_LOADING": "EAGER"},
}


def _initialise() -> None:
    ctypes.CDLL("libcuda.so.1").cuInit(0)


def _context() -> None:
    torch.empty((), device=DEVICE)


def _random() -> None:
    torch.manual_seed(0)
    torch.randn(16, 16, device=DEVICE)


def _product() -> None:
    square = torch.empty(16, 16, device=DEVICE)
    square @ square


def _counted() -> None:
    with counted_launches(Target(DEVICE, None)):
        torch.empty(16, device=DEVICE).zero_()


def _launches() -> None:
    launch_times_ms(DEVICE)


STEPS: dict[str, Callable[[], None]] = {
    "cuInit": _initialise,
    "context": _context,
    "first kernel": _random,
    "cuBLAS": _product,
    "CUPTI": _counted,
    "launches": _launches,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.context_parts", description=__doc__)
    parser.add_argument("--processes", type=int, default=5, help="of each kind, one after the other")
    options = parser.parse_args()
    # Not by NVML: once it has been opened here, forked processes find no device.
    if not Path(CONTROL).exists():
        raise SystemExit("needs an NVIDIA GPU: there are no contexts without one")
    rows = Rows(Console(width=120), "ms, medians", "settings", *STEPS, "its end")
    for name, environment in SETTINGS.items():
        taken = [_taken(environment) for _ in range(options.processes)]
        rows.add(name, *(f"{statistics.median(times):.1f}" for times in zip(*taken, strict=True)))
    rows.end()
    return 0


def _taken(environment: dict[str, str]) -> list[float]:
    """ms of each step in a process of its own, and of its end."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        for name, value in environment.items():
            os.putenv(name, value)
        os.write(tell, json.dumps([_ms(step) for step in STEPS.values()]).encode())
        os._exit(0)
    os.close(tell)
    with open(told, "rb") as pipe:
        steps: list[float] = json.load(pipe)
    return [*steps, _ms(lambda: os.waitpid(pid, 0))]


def _ms(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1e3


if __name__ == "__main__":
    sys.exit(main())
