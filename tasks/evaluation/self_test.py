"""`python -m tasks.evaluation.self_test`: runs one known comparison through the pipeline; exits with 0 if it passes.

It runs in a process of its own, because it loads torch and the device may hang.
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
MAX_CHARS, MAX_BYTES = 500, 2048

REFERENCE = """class Model(nn.Module):
    def forward(self, x):
        return x * 2 + 1

def get_inputs():
    return [torch.randn(1024, 256)]
"""
CANDIDATE = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x + x + 1\n"


def failure(stopping: Event) -> str | None:
    """Run the self-test and return why it failed; None if it passed, or if `stopping` ended it.

    Raises OSError if its process could not start.
    """
    return failure_of([sys.executable, "-m", "tasks.evaluation.self_test", str(os.getpid())], stopping)


def failure_of(command: Sequence[str], stopping: Event) -> str | None:
    """Run that command as the self-test; the end of its output is the reason of its failure."""
    # Output goes to a file: a pipe that nobody reads would block a process that prints more than 64 KiB.
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
        output.seek(max(0, output.seek(0, os.SEEK_END) - MAX_BYTES))
        message = output.read().decode(errors="replace").strip()
    return message[-MAX_CHARS:] or f"the self-test ended with status {process.returncode}"


def main() -> int:
    """Print the reason of a failure to stdout; returns the exit status."""
    # The worker may be killed: this process must then die too, and the pipeline's processes die with it.
    die_with_parent(int(sys.argv[1]))
    from tasks.evaluation.pipeline import run
    from tasks.runtime.worker_context import worker_context

    request = Request(
        Kernel(CANDIDATE, KernelType.TORCH), reference=Kernel(REFERENCE, KernelType.TORCH), num_trials=1, timeout=60
    )
    try:
        worker = worker_context()
        try:
            outcome = run(request, worker).outcome
        finally:
            worker.close()
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        return 1
    if outcome.status is not Status.PASSED:
        print(f"a correct kernel got the verdict {outcome.status}: {outcome.message}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
