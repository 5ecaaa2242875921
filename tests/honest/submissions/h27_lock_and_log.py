"""A lock around the first call, and a look at the clock for a log."""

import threading
import time

import torch
from torch import nn

SUBMISSION = {"row": "H27", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}

lock = threading.Lock()
log = []


class ModelNew(nn.Module):
    def forward(self, x):
        with lock:
            if not log:
                log.append(time.perf_counter())
        return torch.softmax(x, -1)
