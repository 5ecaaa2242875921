"""Judges examples by the whole pipeline below a worker that is root or an ordinary user: `python -m` with which, names.

A program of its own, since who gives up being root cannot take it back. Prints one JSON object on one line: by name,
the verdict, the message, and the verdict that is right.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from domain.request import Request
from domain.settings import settings
from sandbox.isolation import uid
from sandbox.isolation.scratch_dir import remove
from stack.example import FOLDER, Example
from tests.sandbox.run_attacks_as import ORDINARY_USER


def main() -> None:
    mode, *names = sys.argv[1:]
    state = Path(tempfile.mkdtemp(prefix="canonical-"))
    if mode == "user":
        os.chown(state, ORDINARY_USER, ORDINARY_USER)
        uid.become(ORDINARY_USER, search_everywhere=uid.searches_everywhere())
    os.environ |= {"STATE_DIR": str(state), "LEASE_DIR": str(state), "HOME": str(state), "TMPDIR": str(state)}
    settings.cache_clear()
    # Only now: torch keeps what it finds of the environment when it is imported.
    from tasks.evaluation.pipeline import run
    from tasks.runtime.worker_context import WorkerContext

    worker = WorkerContext()
    told = {}
    try:
        for name in names:
            example = Example.load(FOLDER / name)
            body = dict(example.body)
            wire = {
                "kernel": body.pop("kernel", None) or body.pop("custom_kernel"),
                "reference": body.pop("ref_kernel", None),
                "timeout": 300,
                "num_trials": 10,
            }
            outcome = run(Request.from_wire(wire), worker).outcome
            right = example.expected(gpu=worker.target.is_cuda)
            told[name] = [outcome.status.value, outcome.message or outcome.log, right.value]
    finally:
        worker.close()
        remove(state)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
