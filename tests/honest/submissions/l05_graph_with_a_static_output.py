"""Captures a CUDA graph at its first call, replays it, answers in the graph's own memory."""

import torch
from torch import nn

SUBMISSION = {"row": "L5", "type": "torch", "attacks": "softmax", "expect": "H", "on": "gpu"}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = None

    def forward(self, x):
        if self.graph is None:
            self.given = x.clone()
            self.answer = torch.softmax(self.given, -1)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.answer = torch.softmax(self.given, -1)
        self.given.copy_(x)
        self.graph.replay()
        return self.answer
