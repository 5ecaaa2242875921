"""Counts the floating-point operations of a call by torch's own operators, in the runner: UNTRUSTED."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, _FlopCounterMode, flop_registry

UNKNOWN = "unknown"


def _spare_the_compiler() -> None:
    """Keeps torch from importing its compiler, which takes seconds, only to disable it inside the counter.

    torch first looks for this attribute of the function (torch._disable_dynamo). If a later torch ignores it, the
    import happens again and nothing else changes.
    """
    inner = getattr(_FlopCounterMode.__torch_dispatch__, "__wrapped__", None)
    if inner is not None:
        setattr(inner, "__dynamo_disable", inner)


_spare_the_compiler()


def count_flops(call: Callable[[], object]) -> dict[str, int]:
    """FLOPs of matrix products, convolutions and attention in one call, by the wire name of the dtype.

    torch counts only operators with a formula, so the figure is a lower bound. Masks of attention are ignored.
    """
    totals: dict[str, int] = defaultdict(int)

    def counting(formula: Callable[..., int]) -> Callable[..., int]:
        def count(*args: Any, **kwargs: Any) -> int:
            operations = int(formula(*args, **kwargs))
            totals[_dtype(args)] += operations
            return operations

        # The registry's own formulas take raw arguments already; without this they would get shapes only.
        count._get_raw = True  # type: ignore[attr-defined]
        return count

    with FlopCounterMode(display=False, custom_mapping={op: counting(one) for op, one in flop_registry.items()}):
        call()
    return dict(totals)


def _dtype(args: tuple[Any, ...]) -> str:
    """The narrowest operand's: an 8-bit product also has scales in float32."""
    floats = [arg.dtype for arg in args if isinstance(arg, torch.Tensor) and arg.dtype.is_floating_point]
    return str(min(floats, key=lambda dtype: dtype.itemsize)).removeprefix("torch.") if floats else UNKNOWN
