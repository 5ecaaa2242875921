"""Whether a call changed tensors that it was to leave alone."""

from __future__ import annotations

import torch

from validation.bits import identical


def changed(before: list[torch.Tensor], after: list[torch.Tensor]) -> list[int]:
    """Indexes of the tensors whose dtype, shape or bits differ; a NaN is equal to itself, -0.0 is not 0.0.

    Raises ValueError when the two lists differ in length.
    """
    return [index for index, pair in enumerate(zip(before, after, strict=True)) if not identical(*pair)]
