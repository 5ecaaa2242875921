"""The null kernel: our own code in a runner of its own, for calibrating what a window costs by itself."""

from __future__ import annotations

from typing import Any

import torch

from backends.base import Executable, Target


class NullKernel(Executable):
    """Returns tensors made beforehand, one for each slot, so that only the protocol costs time.

    Its arguments are whether to launch something, and the tensors to imitate: the slots that its answer will be copied
    into. Each has a buffer of its own, as real answers do: copies out of one hot buffer would be cheaper.
    """

    entry = "the null kernel"

    def __init__(self, target: Target) -> None:
        self._target = target
        self._word = torch.zeros(1, device=target.device)
        self._made: dict[tuple[Any, ...], torch.Tensor] = {}

    def call(self, args: list[Any]) -> Any:
        launch, *slots = args
        if launch:
            # Without any work the device would not change over to this process, which is most of what a window costs.
            self._word.add_(1)
        return [self._like(slot) for slot in slots] or None

    def _like(self, tensor: torch.Tensor) -> torch.Tensor:
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if key not in self._made:
            self._made[key] = torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device=self._target.device
            )
        return self._made[key]
