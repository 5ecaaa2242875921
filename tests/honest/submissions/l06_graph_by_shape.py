"""Keeps a CUDA graph for each shape, and answers with a copy of its output."""

import torch
from torch import nn

SUBMISSION = {"row": "L6", "type": "torch", "attacks": "softmax", "expect": "H", "on": "gpu"}

graphs = {}


def captured(x):
    given = x.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.softmax(given, -1)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        answer = torch.softmax(given, -1)
    return graph, given, answer


class ModelNew(nn.Module):
    def forward(self, x):
        key = (tuple(x.shape), x.dtype)
        if key not in graphs:
            graphs[key] = captured(x)
        graph, given, answer = graphs[key]
        given.copy_(x)
        graph.replay()
        return answer.clone()
