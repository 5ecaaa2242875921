"""Keeps a call in float64 where its source casts to a lower precision, in the runner."""

from __future__ import annotations

from itertools import count
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

LOWER = (torch.float32, torch.bfloat16, torch.float16)
"""Dtypes that a source computes in. A cast to float8 stays: a source that makes one quantises on purpose."""
_ATEN = torch.ops.aten
SELECTIONS = (_ATEN.topk.default, _ATEN.sort.default, _ATEN.max.dim, _ATEN.min.dim)
POSITIONS = (_ATEN.argmax.default, _ATEN.argmin.default)
"""Operators that return indices: of equal values, a top-k or an unstable sort may name any. A maximum names the first,
which among saturated scores need not be the first for a kernel that rounds otherwise, or that compares their logits."""
TIE_STEP = 2.0**-21
"""Maximum relative move of the values that a selection orders, 8 unit round-offs of float32: kernels in float32 cannot
tell the order of closer values, such as two sigmoids near 1. Values below float32's normal range move by up to that."""
_SEEDS = count()


class Float64Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Turns every request for a dtype of `LOWER`, or for the default dtype, into one for float64.

    A reference often names its dtypes: `(x.to(torch.bfloat16) @ w).float()` would round in bfloat16 although its inputs
    are float64. With `rounds`, a tensor cast to bfloat16 or float16 is rounded to that dtype, and stays float64.

    A selection orders values that are equal in float32 at random, differently in each mode. Otherwise runs that agree
    on the index of one of them, as of saturated scores, would make it look determined.
    """

    def __init__(self, *, rounds: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._rounds = rounds
        self._seed = next(_SEEDS)
        self._generators: dict[torch.device, torch.Generator] = {}

    def __enter__(self) -> Any:
        self._default_dtype = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        torch.set_default_dtype(self._default_dtype)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keeps torch from importing its compiler, which takes seconds, only to disable it inside this mode."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.ops.aten._scaled_mm.default:
            return _scaled_mm(*args, **kwargs)
        if args and func in (*SELECTIONS, *POSITIONS) and args[0].dtype is torch.float64:
            return self._selected(func, *args, **kwargs)
        dtype = kwargs.get("dtype")
        if dtype not in LOWER:
            return func(*args, **kwargs)
        result = func(*args, **(kwargs | {"dtype": torch.float64}))
        if self._rounds and dtype is not torch.float32 and isinstance(result, torch.Tensor):
            return result.to(dtype).to(torch.float64)
        return result

    def _selected(self, func: Any, values: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Returns the result of a selection, with the indices that it gives where equal values are in random order."""
        device = values.device  # Numbers of the host would take seconds to draw and copy for a large tensor.
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        moves = torch.rand(values.shape, generator=self._generators[device], dtype=torch.float64, device=device)
        moves *= values.abs() * TIE_STEP + torch.finfo(torch.float32).tiny
        shuffled = func(values + moves.masked_fill_(~values.isfinite(), 0.0), *args, **kwargs)
        return shuffled if func in POSITIONS else [func(values, *args, **kwargs)[0], shuffled[1]]


def _scaled_mm(
    one: torch.Tensor,
    other: torch.Tensor,
    scale_one: torch.Tensor,
    scale_other: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> torch.Tensor:
    """torch._scaled_mm in float64, for scales of a tensor or of its rows and columns; raises for any other form.

    A call without `out_dtype` returns float8, which only a scaled result fits.
    """
    if scale_result is not None or out_dtype not in LOWER:
        raise NotImplementedError("a product in float8 has no form in float64")
    rows, columns = one.shape[0], other.shape[1]
    if scale_one.numel() not in (1, rows) or scale_other.numel() not in (1, columns):
        raise NotImplementedError("scales of blocks have no form in float64")
    product = (one.double() * scale_one.double().reshape(-1, 1)) @ (
        other.double() * scale_other.double().reshape(1, -1)
    )
    return product if bias is None else product + bias.double()
