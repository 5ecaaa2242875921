"""`python -m tasks.self_test`: one comparison of our own through the whole pipeline; status 0 if its verdict is right.

In a process of its own, since it loads torch and may meet a card that does not answer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from threading import Event

from domain.kernel import Kernel, KernelType
from domain.request import Request
from domain.result import Status
from sandbox.limits import die_with_parent

TIMEOUT_S = 240.0
POLL_S = 0.1
TOLD_CHARS = 500

REFERENCE = """class Model(nn.Module):
    def forward(self, x):
        return x * 2 + 1

def get_inputs():
    return [torch.randn(1024, 256)]
"""
CANDIDATE = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x + x + 1\n"


def failure(stopping: Event) -> str | None:
    """Runs the test and says why it failed; None if it did not, or if it was stopped before its end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tasks.self_test", str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    with process:
        deadline = time.monotonic() + TIMEOUT_S
        while process.poll() is None and not stopping.wait(POLL_S):
            if time.monotonic() > deadline:
                process.kill()
                return f"the self-test was not done after {TIMEOUT_S:.0f} s"
        if process.poll() is None:
            process.kill()
            return None
        assert process.stdout is not None
        told = process.stdout.read().decode(errors="replace").strip()
    if process.returncode == 0:
        return None
    return told[-TOLD_CHARS:] or f"the self-test ended with status {process.returncode}"


def main() -> int:
    """Says on stdout what is wrong."""
    # The worker may be killed; the pipeline's own processes die with this one.
    die_with_parent(int(sys.argv[1]))
    from tasks.pipeline import run
    from tasks.workbench import workbench

    request = Request(
        Kernel(CANDIDATE, KernelType.TORCH), reference=Kernel(REFERENCE, KernelType.TORCH), num_trials=1, timeout=60
    )
    try:
        bench = workbench()
        try:
            outcome = run(request, bench, lambda stage: None, lambda: False).outcome
        finally:
            bench.close()
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        return 1
    if outcome.status is not Status.PASSED:
        print(f"a right kernel was judged {outcome.status}: {outcome.message}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
