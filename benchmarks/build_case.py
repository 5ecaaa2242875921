"""Builds or calls one submission in a process of its own, for `benchmarks.builds`; JSON in and out."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch

from backends.base import NO_REFERENCE, Artifact, Target
from backends.registry import backend
from domain.fault import KernelFault
from domain.kernel import Kernel, KernelType


def main() -> None:
    case = json.load(sys.stdin)
    answer = {"build": _build, "call": _call}[case["do"]](case)
    sys.stdout.flush()
    print()
    print(json.dumps(answer))


def _build(case: dict[str, Any]) -> dict[str, Any]:
    """Compiles without a visible GPU; returns wall and processor seconds, and how it was built."""
    serving, kernel = backend(KernelType.TORCH_CUDA), _kernel(case)
    began, before = time.monotonic(), _processor_s()
    log, headers = "", []
    try:
        artifact = serving.build(kernel, Path(case["folder"]), _target(case))
        compiled, headers = True, artifact.facts.get("headers", [])
    except KernelFault as fault:
        # Without a GPU, a CUDA source compiles and links, and ends with this fault.
        compiled, log = fault.compiled, f"{fault.message}\n{fault.log}"
    took, worked = time.monotonic() - began, _processor_s() - before
    notes = sorted(Path(case["folder"]).glob("ext/*/*.headers"))
    headers = headers or [f"{note.stem}: {note.read_text(encoding='utf-8')}" for note in notes]
    return {"compiled": compiled, "seconds": took, "processor_s": worked, "headers": headers, "log": log[-4000:]}


def _call(case: dict[str, Any]) -> dict[str, Any]:
    """The outputs of the built extension, each as hexadecimal bytes."""
    executable = backend(KernelType.TORCH_CUDA).load(
        _kernel(case), Path(case["folder"]), _target(case), Artifact(), NO_REFERENCE, 1
    )
    answer = executable.call(executable.own_inputs(1) or [])
    outputs = [answer] if isinstance(answer, torch.Tensor) else list(answer)
    return {"outputs": [output.float().cpu().contiguous().numpy().tobytes().hex() for output in outputs]}


def _kernel(case: dict[str, Any]) -> Kernel:
    return Kernel(case["source"], KernelType.TORCH_CUDA)


def _target(case: dict[str, Any]) -> Target:
    return Target(case["device"], case["arch"], case["toolchain"])


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
