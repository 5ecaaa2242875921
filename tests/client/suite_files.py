"""Small suites of each layout, made for the tests, and results as the service would give them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kernel_eval_client import Result, Speedup

TWICE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.randn(64)]

def get_init_inputs():
    return []
"""
NEW = "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x + x\n"


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def kernelbench_folder(tmp_path: Path) -> Path:
    files = {
        "level1/2_twice.py": TWICE,
        "level1/2_twice_better.py": NEW,
        "level1/2_twice/candidate.py": NEW,
        "level1/10_relu.py": TWICE.replace("x * 2", "torch.relu(x)"),
        "level2/sums/reference.py": TWICE.replace("x * 2", "x.sum()"),
        "level2/sums/torch.py": NEW.replace("x + x", "x.mean() * x.numel()"),
        "notes/readme.py": "print('no problem')\n",
    }
    return write(tmp_path / "bench", files)


TASK = """
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "task.py", "source": "task.py"}
  - {"name": "checking.py", "source": "../checking.py"}
  - {"name": "reference.py", "source": "reference.py"}
  - {"name": "eval.py", "source": "../eval.py"}
lang: "py"
description: |
  Adds two vectors.
tests:
  - {"size": 33, "seed": 1}
  - {"size": 64, "seed": 2}
benchmarks:
  - {"size": 128, "seed": 3}
"""
REFERENCE = """# A comment in the first line.
import torch
from checking import make_match_reference
from task import input_t, output_t


def ref_kernel(data: input_t) -> output_t:
    x, (y, scale), _ = data
    return x + y * scale


def generate_input(size: int, seed: int) -> input_t:
    generator = torch.Generator().manual_seed(seed)
    y = torch.empty(size).normal_(generator=generator)
    return torch.randn(size, generator=generator), (y, 0.5), torch.empty(size)


check_implementation = make_match_reference(ref_kernel, rtol=1e-3, atol=1e-4)
"""
CHECKING = """
import torch


def make_match_reference(reference, **tolerances):
    def check(data, output):
        return torch.allclose(reference(data), output, **tolerances), ""

    return check
"""
CHECKED_BY_CODE = REFERENCE.replace(
    "check_implementation = make_match_reference(ref_kernel, rtol=1e-3, atol=1e-4)",
    "def check_implementation(data, output):\n    return residual(output) < 1e-3",
)
SUBMISSION = """#!POPCORN leaderboard add
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    x, (y, scale), out = data
    return torch.add(x, y, alpha=scale, out=out)
"""


def gpu_mode_task(tmp_path: Path) -> Path:
    """A data tuple with another in it, a helper module of the task's, a right submission and a wrong one."""
    files = {
        "checking.py": CHECKING,
        "eval.py": "raise SystemExit('not ours')\n",
        "add/task.yml": TASK,
        "add/task.py": "from typing import TypeVar\n\ninput_t = TypeVar('input_t')\noutput_t = TypeVar('output_t')\n",
        "add/reference.py": REFERENCE,
        "add/submission.py": SUBMISSION,
        "add/solutions/wrong.py": SUBMISSION.replace("alpha=scale", "alpha=0.4"),
    }
    return write(tmp_path / "tasks", files)


STRUCTURES = """
from typing import NamedTuple

import torch


class Data(NamedTuple):
    x: torch.Tensor
    more: dict
    packed: torch.Tensor
"""
OF_STRUCTURES = """
import dataclasses

import torch
from task import Data
from checking import make_match_reference


@dataclasses.dataclass(frozen=True)
class Config:
    scale: float
    dtype: torch.dtype

    def __post_init__(self):
        object.__setattr__(self, "scale", self.scale + 0.5)

    @property
    def doubled(self):
        return 2 * self.scale


def ref_kernel(data):
    assert data.packed.dtype == torch.float4_e2m1fn_x2
    return (data.x * data.more["config"].doubled).to(data.more["config"].dtype)


def generate_input(size, seed):
    x = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    packed = torch.ones(size, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    return Data(x, {"config": Config(1.0, torch.float32), "out": torch.empty(size), "flags": [True, None]}, packed)


check_implementation = make_match_reference(ref_kernel, rtol=1e-3, atol=1e-4)
"""
FILLS = """
import torch


def custom_kernel(data):
    x, more, _ = data
    return torch.mul(x, 3.0 * (more["config"].scale == 1.5), out=more["out"])
"""
KNOWS_THE_CLASS = """
from reference import Config


def custom_kernel(data):
    assert isinstance(data.more["config"], Config)
    return (data.x * data.more["config"].doubled).to(data.more["config"].dtype)
"""


def gpu_mode_structures(tmp_path: Path) -> Path:
    """Data of a named tuple: a dict with a buffer and a dataclass of the reference's, and numbers of four bits."""
    files = {
        "checking.py": CHECKING,
        "eval.py": "raise SystemExit('not ours')\n",
        "scale/task.yml": TASK.replace('  - {"size": 64, "seed": 2}\n', ""),
        "scale/task.py": STRUCTURES,
        "scale/reference.py": OF_STRUCTURES,
        "scale/submission_fills.py": FILLS,
        "scale/submission_knows.py": KNOWS_THE_CLASS,
    }
    return write(tmp_path / "tasks", files)


SCALED_LINEAR = """
import torch
import torch.nn as nn


def forward_fn(x, weight, scale):
    return scale * (x @ weight.T)


class Model(nn.Module):
    def __init__(self, width, scale=1.0, kind="normal"):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2 * width, width) if kind == "normal" else torch.ones(2 * width, width))
        self.scale = scale

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight, scale=self.scale)


def get_inputs(rows=4, width=8):
    return [torch.randn(rows, width)]
"""
CONFIGURATIONS = {
    "single_input_configs": [{"rows": 4}],
    "multi_input_configs": [{"rows": 3}, {"rows": 5}, {"rows": 3}],
    "multi_init_configs": [{"scale": 0.5, "kind": "normal"}],
    "multi_shared_configs": [{"width": 8}, {"width": 6}],
}


def robust_kbench_task(tmp_path: Path) -> Path:
    """A task of four cases, with a host file, a right kernel in Python and one that is wrong for five rows."""
    kernel = "def forward(x, weight, scale):\n    return (x * scale{error}) @ weight.T\n"
    files = {
        "linear/func_forward.py": SCALED_LINEAR,
        "linear/config_forward.json": json.dumps(CONFIGURATIONS),
        "linear/forward.cu": "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n",
        "mine/linear/right.py": kernel.format(error=""),
        "mine/linear/wrong.py": kernel.format(error=" - 1.0 * (len(x) == 5)"),
    }
    return write(tmp_path / "tasks", files)


SCALED = {
    "name": "scaled_rows",
    "description": "Rows times a number.",
    "axes": {
        "rows": {"type": "var"},
        "half": {"type": "const", "value": 4},
        "width": {"type": "expr", "expression": "twice"},
        "twice": {"type": "expr", "expression": "half * 2 + rows // 100"},
    },
    "inputs": {
        "x": {"shape": ["rows", "width"], "dtype": "float32"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {
        "y": {"shape": ["rows", "width"], "dtype": "float32"},
        "negative": {"shape": ["rows", "width"], "dtype": "float32"},
    },
    "reference": "import torch\n\n@torch.no_grad()\ndef run(x, scale):\n    return {'negative': -x, 'y': x * scale}\n",
}
GATHERED = {
    "name": "gathered",
    "axes": {"rows": {"type": "const", "value": 6}, "count": {"type": "var"}},
    "inputs": {"x": {"shape": ["rows"], "dtype": "float32"}, "index": {"shape": ["count"], "dtype": "int32"}},
    "outputs": {"y": {"shape": ["count"], "dtype": "float32"}},
    "reference": "def run(x, index):\n    return x[index.long()]\n",
}


def workload(name: str, uuid: str, axes: dict[str, int], **inputs: Any) -> str:
    return json.dumps({"definition": name, "workload": {"uuid": uuid, "axes": axes, "inputs": inputs}}) + "\n"


def solution(name: str, entry: str, source: str, **others: str) -> str:
    spec = {"language": "python", "target_hardware": ["LOCAL"], "entry_point": entry}
    files = [{"path": entry.partition("::")[0], "content": source}]
    files += [{"path": path.replace("_py", ".py"), "content": text} for path, text in others.items()]
    return json.dumps({"name": name, "definition": "scaled_rows", "author": "us", "spec": spec, "sources": files})


def safetensors(path: Path, dtype: str, shape: list[int], raw: bytes) -> Path:
    header = json.dumps({"values": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(raw)]}}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(header).to_bytes(8, "little") + header + raw)
    return path


def flashinfer_set(tmp_path: Path) -> Path:
    """Drawn, given and missing values; a solution that returns, one that writes to its last argument, one in C++."""

    def held(path: str) -> dict[str, str]:
        return {"type": "safetensors", "path": path, "tensor_key": "values"}

    random, half = {"type": "random"}, {"type": "scalar", "value": 0.5}
    gathered = [
        workload("gathered", "bbbb0001", {"count": 3}, x=random, index=held("values/index.safetensors")),
        workload("gathered", "bbbb0002", {"count": 3}, x=random, index=random),
        workload("gathered", "bbbb0003", {"count": 3}, x=random, index=held("values/nosuch.safetensors")),
        workload("gathered", "bbbb0004", {"count": 3}, x=random, index=held("../../outside.safetensors")),
        workload("gathered", "bbbb0005", {}, x=random, index=random),
        workload("gathered", "bbbb0006", {"count": 3}, x=random),
    ]
    files = {
        "definitions/rows/scaled_rows.json": json.dumps(SCALED),
        "definitions/rows/gathered.json": json.dumps(GATHERED),
        "definitions/rows/unused.json": json.dumps({**SCALED, "name": "unused"}),
        "workloads/rows/scaled_rows.jsonl": workload("scaled_rows", "aaaa0001-x", {"rows": 5}, x=random, scale=half),
        "workloads/rows/gathered.jsonl": "".join(gathered),
        "solutions/returns.json": solution("returns", "main.py::run", "def run(x, scale):\n    return scale * x, -x\n"),
        "solutions/writes.json": solution(
            "writes",
            "main.py::go",
            "import torch\n\ndef go(x, scale, y, n):\n    torch.mul(x, scale, out=y)\n    torch.neg(x, out=n)\n",
        ),
        "solutions/wrong.json": solution("wrong", "main.py::run", "def run(x, scale):\n    return x + scale, -x\n"),
        "solutions/keywords.json": solution(
            "keywords", "main.py::run", "def run(*, scale, x):\n    return {'negative': -x, 'y': scale * x}\n"
        ),
        "solutions/reordered.json": solution(
            "reordered", "main.py::run", "def run(negative, y, scale, x):\n    y[:] = x * scale\n    negative[:] = -x\n"
        ),
        "solutions/several.json": solution(
            "several",
            "main.py::run",
            "from .rows import run\n",
            rows_py="from . import base\n\ndef run(scale, x):\n    return base.times(x, scale), -x\n",
            base_py="import inspect\n\ndef times(a, b):\n    assert 'a * b' in inspect.getsource(times)\n"
            "    return a * b\n",
        ),
        "solutions/stranger.json": solution("stranger", "main.py::run", "def run(x, *, factor):\n    return x, -x\n"),
        "solutions/header.json": solution("header", "main.py::run", "def run(x, scale):\n    pass\n", notes="#\n"),
        "solutions/host.json": solution("host", "main.cpp::run", "int main;"),
    }
    root = write(tmp_path / "traces", files)
    safetensors(root / "values" / "index.safetensors", "I32", [3], b"\x05\0\0\0\0\0\0\0\x02\0\0\0")
    return root


def result_of(verdict: str, speedup: Speedup | None, **members: Any) -> Result:
    kernel = {"status": verdict, "compiled": True, "correctness": verdict == "passed"}
    ratio = None if speedup is None else dict(vars(speedup))
    body = {"job_id": "j", "verdict": verdict, "kernel_exec_result": kernel, "speedup": ratio}
    return Result.from_dict(body | members)
