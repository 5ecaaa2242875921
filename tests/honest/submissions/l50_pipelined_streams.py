"""Parts of its work on two streams in turn, each waited for."""

import torch
from torch import nn

SUBMISSION = {"row": "H1", "type": "torch", "attacks": "softmax", "expect": "H", "on": "gpu"}

streams = []


class ModelNew(nn.Module):
    def forward(self, x):
        if not streams:
            streams.extend(torch.cuda.Stream() for _ in range(2))
        current = torch.cuda.current_stream()
        out = torch.empty_like(x)
        for index, (part, place) in enumerate(zip(x.chunk(4), out.chunk(4), strict=True)):
            stream = streams[index % 2]
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                torch.softmax(part, -1, out=place)
        for stream in streams:
            current.wait_stream(stream)
        return out
