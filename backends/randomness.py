"""Every source of random numbers that a submission is likely to draw from, seeded together."""

from __future__ import annotations

import random

import numpy
import torch


def seed_everything(seed: int) -> None:
    """Seeds Python, numpy and torch: the host, and the GPUs where CUDA runs in this process."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    # What torch.manual_seed comes to, less its queries for every other kind of device: they take longer than a draw.
    torch.default_generator.manual_seed(seed % 2**63)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed % 2**63)
