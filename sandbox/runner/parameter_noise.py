"""Adds noise to parameters that a constructor fills with one value, as a new norm layer's are.

A kernel that packs, folds or quantises its parameters at construction packs the noise as well. A kernel that ignores
its parameters then gives wrong outputs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn import init
from torch.nn.modules.batchnorm import _NormBase

from backends.source.module_loader import FILE_NAME

NOISE = 0.25
"""Maximum noise, relative to a constant, or absolute for constants below a half; the minimum is half of it.

It keeps the sign, and exceeds any usual tolerance, for single numbers and for scales that start near zero alike.
"""
SMALL = 0.5
FILLERS = ("_no_grad_fill_", "_no_grad_zero_")
"""Functions that all constant initialisers of `torch.nn.init` call, whatever name they were imported by."""
CONSTANTS = ("ones", "zeros", "full", "ones_like", "zeros_like", "full_like")
MAKERS = {
    torch: (*CONSTANTS, "tensor", "as_tensor", "from_numpy", "linspace"),
    torch.Tensor: ("fill_", "new_full", "new_ones", "new_zeros"),
    numpy: (*CONSTANTS, "array"),
}
"""Functions with which a constructor creates constants, some of them from its arguments."""
TORCHS_OWN = {
    *("aten", "prim", "prims", "rngprims", "debugprims", "higher_order", "inductor", "_inductor_test", "flex_lib"),
    *("c10d", "c10d_functional", "_c10d_functional", "_dtensor", "fsdp", "symm_mem", "streams", "triton", "profiler"),
    *("onnx", "onnx_symbolic", "quantized", "_quantized", "sparse", "static_runtime", "mkldnn", "cuda", "_test"),
}
"""Namespaces of operators that torch itself adds on demand, besides those that exist at the start."""
_preloaded_operators: set[str] = set()


def noised(weight: torch.Tensor, seed: int) -> torch.Tensor:
    generator = torch.Generator(device=weight.device).manual_seed(seed)
    wide = weight.to(torch.float64)  # 8-bit floats have no arithmetic of their own.
    draw = torch.rand(weight.shape, generator=generator, device=weight.device).mul_(2).sub_(1)
    draw = (draw + torch.where(draw < 0, -1, 1)) * (NOISE / 2)  # Keeps the minimum distance from zero, for either sign.
    size = wide.abs()
    away = torch.where(wide == 0, draw, draw.abs() * wide.sign())
    return (wide + torch.where(size > SMALL, size * draw, away)).to(weight.dtype)


def note_operators() -> None:
    """Records the operators that exist before a submission. The zygote calls it once, because it takes 3 ms."""
    _preloaded_operators.update(torch._C._dispatch_get_all_op_names())


def left_global_state(folder: Path) -> bool:
    """Whether a source left state that its next load would find: operators, or modules from files of its own."""
    new = {
        name.partition("::")[0] for name in torch._C._dispatch_get_all_op_names() if name not in _preloaded_operators
    }
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())} - {str(folder / FILE_NAME)}
    own = [file for file in files if isinstance(file, str) and file.endswith(".py")]
    return not new <= TORCHS_OWN or any(Path(file).is_relative_to(folder) for file in own)


class _Noise:
    """Adds noise to tensors whose elements are all equal, with a new seed each time."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._single: list[float] = []

    def add(self, weight: Any) -> None:
        """Adds it in place, because other references may exist. Skips tensors that cannot be read or written."""
        with suppress(Exception):
            values = torch.from_numpy(weight) if isinstance(weight, numpy.ndarray) else weight.detach()
            if not values.is_floating_point() or not bool((values == values.reshape(-1)[0]).all()):
                return
            if values.reshape(-1)[0].item() in self._single:  # A copy or expansion of a noised number.
                return
            self._seed += 1
            values.copy_(noised(values, self._seed))
            if values.numel() == 1:
                self._single.append(values.item())

    def constructed(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def parameter(cls: type, data: Any = None, requires_grad: bool = True) -> Any:
            if requires_grad:
                self.add(data)
            return make(cls, data, requires_grad)

        return parameter

    def filled(self, fill: Callable[..., Any]) -> Callable[..., Any]:
        def constant(tensor: Any, *args: Any) -> Any:
            result = fill(tensor, *args)
            if isinstance(tensor, nn.Parameter) and tensor.requires_grad:
                self.add(tensor)
            return result

        return constant

    def created(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def tensor(*args: Any, **more: Any) -> Any:
            result = make(*args, **more)
            self.add(result)
            return result

        return tensor

    def reset(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def statistics(layer: Any) -> None:
            make(layer)
            self.add(layer.running_mean)
            self.add(layer.running_var)

        return statistics


@contextmanager
def noised_parameters(seed: int | None, *, all_constants: bool = False) -> Iterator[None]:
    """Inside the block, constant trainable parameters and running statistics get noise; without a seed nothing does.

    Other tensors stay as they are, because masks and tables are ones and zeros too. With `all_constants`, every
    constant gets noise, because the source may make parameters from it later. Random generators are not advanced.
    """
    if seed is None:
        yield
        return
    noise = _Noise(seed)
    patched: list[tuple[Any, str, Any]] = [
        (nn.Parameter, "__new__", noise.constructed),
        (_NormBase, "reset_running_stats", noise.reset),
        *((init, name, noise.filled) for name in FILLERS),
        *((owner, name, noise.created) for owner, names in MAKERS.items() for name in names if all_constants),
    ]
    # A tensor's methods are inherited from another class, whose attributes cannot be set.
    before = [vars(owner).get(name) for owner, name, _ in patched]
    try:
        for owner, name, wrapped in patched:
            setattr(owner, name, wrapped(getattr(owner, name)))
        yield
    finally:
        for (owner, name, _), original in zip(patched, before, strict=True):
            if original is not None:
                setattr(owner, name, original)
            else:
                delattr(owner, name)
