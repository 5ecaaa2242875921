"""Seeds, saves and restores every random generator that a submission is likely to use."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy
import torch


def seed_everything(seed: int) -> None:
    """Seeds Python, numpy and torch: the host, and the GPUs where CUDA runs in this process."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    # Does what torch.manual_seed does, without its queries for every other kind of device, which take longer than a
    # draw.
    torch.default_generator.manual_seed(seed % 2**63)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed % 2**63)


def drew_on_host() -> bool:
    """Whether torch's generator of the host has given numbers since it was seeded."""
    generator = torch.default_generator
    unused = torch.Generator().manual_seed(generator.initial_seed())
    return not numpy.array_equal(generator.get_state().numpy(), unused.get_state().numpy())


def rng_snapshot() -> Callable[[], None]:
    """Returns a function that restores all generators to their state at this moment."""
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
