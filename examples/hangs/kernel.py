import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        while True:
            pass


def get_inputs():
    return [torch.randn(16)]
