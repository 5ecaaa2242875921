"""What is submitted: cheap jobs of every sort with the verdict that each must have, in a seeded order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

INPUTS = "\ndef get_inputs():\n    return [torch.zeros(8)]\n"
RIGHT = "def kernel_fn(x):\n    return x + 1\n" + INPUTS
SLOW_BUILD = "import time\ntime.sleep(0.3)\n" + RIGHT
"""A builder imports the source, so that there is time to meet one."""

SLOW_RUN = "import time\ndef kernel_fn(x):\n    time.sleep(0.02)\n    return x + 1\n" + INPUTS
REFERENCE = "class Model(nn.Module):\n    def forward(self, x):\n        return x * 2\n" + INPUTS
TWICE = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x + x\n"
THRICE = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x * 3 + 1\n"


@dataclass(frozen=True)
class Job:
    """A request's path and body; `key` makes a submission that is sent again the same job."""

    key: str
    path: str
    body: dict[str, Any]
    verdict: str


def _evaluate(source: str) -> tuple[str, dict[str, Any]]:
    return "/evaluate", {"kernel": {"source_code": source, "kernel_type": "torch"}}


def _compare(candidate: str) -> tuple[str, dict[str, Any]]:
    kernels = {"ref_kernel": REFERENCE, "custom_kernel": candidate}
    return "/compare", {name: {"source_code": source, "kernel_type": "torch"} for name, source in kernels.items()}


KINDS = [
    *[(_evaluate(RIGHT), "passed")] * 3,
    *[(_evaluate(SLOW_BUILD), "passed")] * 2,
    *[(_evaluate(SLOW_RUN), "passed")] * 2,
    (_compare(TWICE), "passed"),
    (_compare(THRICE), "wrong_result"),
    (_evaluate("def kernel_fn(x:"), "compile_error"),
    (_evaluate("def kernel_fn(x):\n    raise ValueError\n" + INPUTS), "runtime_error"),
    (_evaluate("import ctypes\ndef kernel_fn(x):\n    ctypes.string_at(0)\n" + INPUTS), "crashed"),
    (_evaluate("import os\ndef kernel_fn(x):\n    os._exit(3)\n" + INPUTS), "crashed"),
]
HANG = (_evaluate("def kernel_fn(x):\n    while True:\n        pass\n" + INPUTS), "timeout")
SPECIAL = 0.2
HANGS = 100
"""One job in so many hangs: it holds the device until its deadline, the shortest that there is."""


def jobs(count: int, seed: int) -> Iterator[Job]:
    """That many; the same for the same seed."""
    draw = random.Random(seed)
    for number in range(count):
        hangs = number % HANGS == HANGS // 2
        (path, body), verdict = HANG if hangs else draw.choice(KINDS)
        # Of every urgency, and some in a line of their own.
        how = {"priority": draw.randrange(10), **({"gpu": "cpu"} if draw.random() < SPECIAL else {})}
        yield Job(f"{seed}-{number}", path, {**body, **how, "num_trials": 1, "timeout": 5 if hangs else 60}, verdict)
