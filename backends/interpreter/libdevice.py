"""Adds the `libdevice` functions, which Triton's interpreter lacks, by means of torch's equivalents."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl

from backends.source.error_report import NotInterpreted

_MODULES = ("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice")
_SAME_NAMES = (
    "abs acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf erfc erfinv exp exp2 expm1 floor fmod hypot "
    "isinf isnan lgamma log log10 log1p log2 nextafter pow rsqrt signbit sin sinh sqrt tan tanh trunc"
)
"""Functions that torch has under the same name."""

_FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    **{name: getattr(torch, name) for name in _SAME_NAMES.split()},
    **{f"fast_{name}f": getattr(torch, name) for name in ("cos", "exp", "log", "log10", "log2", "pow", "sin", "tan")},
    "add_rn": torch.add,
    "sub_rn": torch.sub,
    "mul_rn": torch.mul,
    "div_rn": torch.div,
    "fast_dividef": torch.div,
    "rcp_rn": torch.reciprocal,
    "sqrt_rn": torch.sqrt,
    "rsqrt_rn": torch.rsqrt,
    "rint": torch.round,
    "llrint": lambda x: x.round().long(),
    "nearbyint": torch.round,
    "finitef": torch.isfinite,
    "isfinited": torch.isfinite,
    "fast_tanhf": torch.tanh,
    "fma": lambda x, y, z: x * y + z,
    "fma_rn": lambda x, y, z: x * y + z,
    "fdim": lambda x, y: torch.clamp(x - y, min=0),
    "cbrt": lambda x: torch.copysign(x.abs() ** (1 / 3), x),
    # Not floor(x + 0.5), which float32 rounds up just below a half, and for odd numbers beyond 2**23.
    "round": lambda x: torch.copysign(x.trunc().abs() + (x.frac().abs() >= 0.5), x),
    "normcdf": torch.special.ndtr,
    "saturatef": lambda x: torch.clamp(x, 0, 1),
}

_DTYPES = {"bool": tl.int1, "int64": tl.int64}
"""Result types that may differ from the arguments'."""

_Decode = Callable[[Any], np.ndarray[Any, Any]]
_Encode = Callable[[np.ndarray[Any, Any], tl.dtype], Any]


def install(decode: _Decode, encode: _Encode) -> None:
    """Puts the functions where sources import them. `decode` and `encode` convert between a handle and its numbers."""
    for path in _MODULES:
        module = importlib.import_module(path)
        for name in [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]:
            if getattr(getattr(module, name), "__module__", None) == path:
                setattr(module, name, _interpreted(name, _FUNCTIONS.get(name), decode, encode))


def _interpreted(
    name: str, function: Callable[..., torch.Tensor] | None, decode: _Decode, encode: _Encode
) -> Callable[..., Any]:
    def called(*arguments: Any, **_: Any) -> Any:
        if function is None:
            raise NotInterpreted(f"libdevice.{name}")
        values = [value.value if isinstance(value, tl.constexpr) else value for value in arguments]
        tensors = [value for value in values if isinstance(value, tl.tensor)]
        numbers = [
            torch.from_numpy(np.array(decode(value.handle) if isinstance(value, tl.tensor) else np.array([value])))
            for value in values
        ]
        kind = next(number.dtype for number, value in zip(numbers, values, strict=True) if value is tensors[0])
        result = function(*(number.to(kind) for number in numbers)).numpy()
        dtype = _DTYPES.get(result.dtype.name, tensors[0].dtype)
        shaped = any(tensor.type.is_block() for tensor in tensors)
        return tl.tensor(encode(result, dtype), tl.block_type(dtype, list(result.shape)) if shaped else dtype)

    return called
