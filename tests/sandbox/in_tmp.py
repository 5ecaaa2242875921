"""Judges a source that builds an extension below /tmp, twice: `python -m` with the worker's rights and a folder.

The worker keeps its state below that folder. A program of its own, since who gives up being root cannot
take it back. Prints one JSON object on one line: by attempt, the verdict, its message, and what is told of the build.
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
from tests.sandbox.container import DOCKERS_CAPABILITIES
from tests.sandbox.run_attacks_as import ORDINARY_USER

SOURCE = """
import os
import torch
from torch.utils.cpp_extension import load_inline

FOLDER = "/tmp/extensions/tripled"
os.makedirs(FOLDER, exist_ok=True)
open("/tmp/extensions/note", "w").close()
CODE = "torch::Tensor tripled(torch::Tensor x) { return 3 * x; }"
built = load_inline("tripled_in_tmp", cpp_sources=CODE, functions=["tripled"], build_directory=FOLDER)
assert os.path.exists("/tmp/extensions/note")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return built.tripled(x)
"""
REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 3.0

def get_inputs():
    return [torch.randn(1 << 10)]

def get_init_inputs():
    return []
"""


def main() -> None:
    mode, place = sys.argv[1:]
    state = Path(tempfile.mkdtemp(prefix="in-tmp-", dir=place))
    if mode == "user":
        os.chown(state, ORDINARY_USER, ORDINARY_USER)
        uid.become(ORDINARY_USER, search_everywhere=False)
    if mode == "container":
        uid.keep_only(DOCKERS_CAPABILITIES)
    os.environ |= {"STATE_DIR": str(state), "LEASE_DIR": str(state), "HOME": str(state), "TMPDIR": str(state)}
    os.environ |= {"CUDA_VISIBLE_DEVICES": ""}
    settings.cache_clear()
    # Only now: torch keeps what it finds of the environment when it is imported.
    from tasks.evaluation.pipeline import run
    from tasks.runtime.worker_context import WorkerContext

    worker = WorkerContext()
    told = []
    try:
        for _ in range(2):
            wire = {
                "kernel": {"source_code": SOURCE, "kernel_type": "torch_cuda"},
                "reference": {"source_code": REFERENCE, "kernel_type": "torch"},
                "timeout": 300,
                "num_trials": 10,
            }
            outcome = run(Request.from_wire(wire), worker).outcome
            told.append({"status": outcome.status.value, "message": outcome.message, "build": outcome.build})
    finally:
        worker.close()
        remove(state)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
