"""`python -m tasks.evaluation.self_test`: one comparison of our own through the whole pipeline; status 0 if its verdict
is right.

In a process of its own, since it loads torch and may meet a card that does not answer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from threading import Event

from domain.kernel import Kernel, KernelType
from domain.request import Request
from domain.result import Status
from sandbox.isolation.rlimits import die_with_parent

TIMEOUT_S = 240.0
POLL_S = 0.1
TOLD_CHARS, TOLD_BYTES = 500, 2048

REFERENCE = """class Model(nn.Module):
    def forward(self, x):
        return x * 2 + 1

def get_inputs():
    return [torch.randn(1024, 256)]
"""
CANDIDATE = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x + x + 1\n"


def failure(stopping: Event) -> str | None:
    """Runs the test and says why it failed; None if it did not, or if it was stopped before its end.

    Raises OSError where it could not be started.
    """
    return _failure_of([sys.executable, "-m", "tasks.evaluation.self_test", str(os.getpid())], stopping)


def _failure_of(command: Sequence[str], stopping: Event) -> str | None:
    # Into a file: a pipe that nobody reads holds a process up that prints more than 64 KiB.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
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
        if process.returncode == 0:
            return None
        output.seek(max(0, output.seek(0, os.SEEK_END) - TOLD_BYTES))
        told = output.read().decode(errors="replace").strip()
    return told[-TOLD_CHARS:] or f"the self-test ended with status {process.returncode}"


def main() -> int:
    """Says on stdout what is wrong."""
    # The worker may be killed; the pipeline's own processes die with this one.
    die_with_parent(int(sys.argv[1]))
    from tasks.evaluation.pipeline import run
    from tasks.runtime.worker_context import worker_context

    request = Request(
        Kernel(CANDIDATE, KernelType.TORCH), reference=Kernel(REFERENCE, KernelType.TORCH), num_trials=1, timeout=60
    )
    try:
        bench = worker_context()
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
