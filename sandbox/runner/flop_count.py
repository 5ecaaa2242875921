"""Counts the floating-point operations of a call by torch's own operators, in the runner: UNTRUSTED."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, _FlopCounterMode, flop_registry

UNKNOWN = "unknown"


def _spare_the_compiler() -> None:
    """Before its first count torch imports its compiler, seconds of modules, only to switch it off inside the counter.

    It asks the function first whether that has been done (torch._disable_dynamo). Where it no longer asks, the import
    is back and nothing else changes.
    """
    inner = getattr(_FlopCounterMode.__torch_dispatch__, "__wrapped__", None)
    if inner is not None:
        setattr(inner, "__dynamo_disable", inner)


_spare_the_compiler()


def counted(call: Callable[[], object]) -> dict[str, int]:
    """Operations of products, convolutions and attention in one call, by the wire name of the dtype they are done in.

    What torch's counter has no formula for counts nothing, so the figure is a lower bound of what the source asks
    for. Attention counts as if nothing were masked.
    """
    found: dict[str, int] = defaultdict(int)

    def noting(formula: Callable[..., int]) -> Callable[..., int]:
        def count(*args: Any, **kwargs: Any) -> int:
            operations = int(formula(*args, **kwargs))
            found[_dtype(args)] += operations
            return operations

        # The registry's own formulas take raw arguments already; without this they would get shapes only.
        count._get_raw = True  # type: ignore[attr-defined]
        return count

    with FlopCounterMode(display=False, custom_mapping={op: noting(one) for op, one in flop_registry.items()}):
        call()
    return dict(found)


def _dtype(args: tuple[Any, ...]) -> str:
    """The narrowest among the operands: an 8-bit product has scales in float32 beside it."""
    floats = [arg.dtype for arg in args if isinstance(arg, torch.Tensor) and arg.dtype.is_floating_point]
    return str(min(floats, key=lambda dtype: dtype.itemsize)).removeprefix("torch.") if floats else UNKNOWN
