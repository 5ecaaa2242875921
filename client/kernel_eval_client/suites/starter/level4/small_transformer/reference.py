"""A language model of two blocks, from tokens to logits."""

import math

import torch
from torch import nn

SIZES = {"batch": 8, "length": 256, "words": 4096, "width": 512, "heads": 8}
SMALL = {"batch": 2, "length": 10, "words": 40, "width": 16, "heads": 2}


def normalised(x, weight, bias):
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(dim=-1, keepdim=True) + 1e-5) * weight + bias


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.before, self.after = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        y = self.before(normalised(x, self.norm1.weight, self.norm1.bias))
        query, key, value = y.reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        mixed = torch.softmax(scores.masked_fill(later, -math.inf), dim=-1) @ value
        x = x + self.after(mixed.transpose(1, 2).reshape(batch, length, width))
        y = self.up(normalised(x, self.norm2.weight, self.norm2.bias))
        return x + self.down(0.5 * y * (1.0 + torch.erf(y / math.sqrt(2.0))))


class Model(nn.Module):
    def __init__(self, length, words, width, heads):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(2)])
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def get_inputs():
    return [torch.randint(0, SIZES["words"], (SIZES["batch"], SIZES["length"]))]


def get_init_inputs():
    return [SIZES[name] for name in ("length", "words", "width", "heads")]
