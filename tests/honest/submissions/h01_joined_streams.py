"""Two streams, joined before the answer is given."""

import torch
from torch import nn

SUBMISSION = {"row": "H1", "type": "torch", "attacks": "two_outputs", "expect": "H", "on": "gpu", "profile": True}

side = None


class ModelNew(nn.Module):
    def forward(self, x):
        global side
        side = side or torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            greatest = x.amax(-1)
        double = x * 2
        torch.cuda.current_stream().wait_stream(side)
        greatest.record_stream(torch.cuda.current_stream())
        return double, greatest
