"""Counting operations costs next to nothing: above all no import of torch's compiler."""

from __future__ import annotations

import subprocess
import sys

from domain.paths import ROOT

COUNTS = """
import sys, torch
from sandbox.runner.flop_count import count_flops
x = torch.randn(64, 64)
assert count_flops(lambda: torch.softmax(x @ x, -1)) == {"float32": 2 * 64**3}
print("torch._dynamo" in sys.modules)
"""


def test_a_count_does_without_the_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", COUNTS], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
