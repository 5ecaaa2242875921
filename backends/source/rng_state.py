"""Every source of random numbers that a submission is likely to draw from, seeded together, and put back together."""

from __future__ import annotations

import random
from collections.abc import Callable

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


def resumption() -> Callable[[], None]:
    """What puts all of them back to where they are now."""
    python, array, host = random.getstate(), numpy.random.get_state(), torch.default_generator.get_state()
    on_devices = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = torch.cuda.get_rng_state_all() if on_devices else []

    def resume() -> None:
        random.setstate(python)
        numpy.random.set_state(array)
        torch.default_generator.set_state(host)
        if devices:
            torch.cuda.set_rng_state_all(devices)

    return resume
