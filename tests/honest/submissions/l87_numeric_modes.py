"""Asks for the most precise numeric modes when imported."""

import torch
from torch import nn

SUBMISSION = {"row": "L87", "type": "torch", "attacks": "matmul", "expect": "H", "on": "cpu gpu"}

torch.set_float32_matmul_precision("highest")
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


class ModelNew(nn.Module):
    def forward(self, x, y):
        return torch.mm(x, y)
