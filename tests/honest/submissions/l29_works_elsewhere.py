"""Goes to a folder of its own, keeps files there, and asks a program about the machine."""

import os
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

SUBMISSION = {"row": "L29", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}

os.chdir(tempfile.mkdtemp())
Path("machine.txt").write_bytes(subprocess.run(["uname", "-m"], capture_output=True, check=True).stdout)


class ModelNew(nn.Module):
    def forward(self, x):
        with Path("calls.log").open("a") as log:
            log.write("call\n")
        return torch.softmax(x, -1)
