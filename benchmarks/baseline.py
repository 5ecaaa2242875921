"""Judging without a service: a fresh interpreter for each job imports, compares, times and ends."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from benchmarks import jobs
from benchmarks.latency import Latency
from domain.kernel import KernelType

TRIALS, WARM_UPS = 100, 3
TOLERANCE = 1e-2
JOB_S = 120.0


def baseline(bodies: list[dict[str, Any]], within_s: float) -> Latency:
    """Each comparison from the start of its interpreter to its verdict, one after the other.

    Judges as many as fit into `within_s`, and at least one.
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
    """Compares and times in one process, with the host's clock around each call, as common scripts do."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    reference, get_inputs = _module(body["ref_kernel"]["source_code"], "Model", device)
    candidate = _CALLABLE[KernelType(body["custom_kernel"]["kernel_type"])](body["custom_kernel"], device)
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


def _module(source: str, name: str, device: str) -> tuple[Any, Any]:
    import torch

    names: dict[str, Any] = {"torch": torch, "nn": torch.nn}
    exec(source, names)
    return names[name]().to(device), names.get("get_inputs")


def _torch(kernel: dict[str, Any], device: str) -> Any:
    return _module(kernel["source_code"], "ModelNew", device)[0]


def _triton(kernel: dict[str, Any], device: str) -> Any:
    import torch
    import triton

    triton.knobs.runtime.interpret = device == "cpu"
    path = Path(tempfile.mkdtemp(), "submission.py")
    path.write_text(kernel["source_code"], encoding="utf-8")  # Triton reads a kernel's source from its file.
    try:
        spec = spec_from_file_location("submission", path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is no module")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        launched = module.kernel
    finally:
        shutil.rmtree(path.parent)

    def call(x: Any) -> Any:
        y = torch.empty_like(x)
        launched[(-(-x.numel() // jobs.BLOCK),)](x, y, x.numel(), BLOCK=jobs.BLOCK)
        return y

    return call


def _cuda(kernel: dict[str, Any], device: str) -> Any:
    import cupy
    import torch

    launched = cupy.RawKernel(kernel["source_code"], "kernel")

    def call(x: Any) -> Any:
        y = torch.empty_like(x)
        n = cupy.int32(x.numel())
        launched((-(-x.numel() // jobs.BLOCK),), (jobs.BLOCK,), (x.data_ptr(), y.data_ptr(), n))
        return y

    return call


_CALLABLE = {KernelType.TORCH: _torch, KernelType.TRITON: _triton, KernelType.CUDA: _cuda}


if __name__ == "__main__":
    print(json.dumps(judge(json.load(sys.stdin))))
