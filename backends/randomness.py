"""Every source of random numbers that a submission is likely to draw from, seeded together."""

from __future__ import annotations

import random

import numpy
import torch


def seed_everything(seed: int) -> None:
    """Seeds Python, numpy and torch (all devices)."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed % 2**63)
