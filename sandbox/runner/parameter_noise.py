"""Parameters that a constructor gives one value, as a new norm layer's, made with noise on them.

Whoever packs, folds or quantises them when it is made has packed the noise then; who leaves them out has not.
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
"""At most so much, and half of it at least, of a constant's own size, or of one where that is less than a half: its
sign stays, and it shows at any usual tolerance, be it a single number or the scale of a layer that begins as if it were
hardly there."""
SMALL = 0.5
FILLERS = ("_no_grad_fill_", "_no_grad_zero_")
"""What all of `torch.nn.init` comes down to that makes constants, by whatever name it was imported."""
CONSTANTS = ("ones", "zeros", "full", "ones_like", "zeros_like", "full_like")
MAKERS = {
    torch: (*CONSTANTS, "tensor", "as_tensor", "from_numpy", "linspace"),
    torch.Tensor: ("fill_", "new_full", "new_ones", "new_zeros"),
    numpy: (*CONSTANTS, "array"),
}
"""By which a constructor makes constants, some of them of what it is given."""
TORCHS_OWN = {
    *("aten", "prim", "prims", "rngprims", "debugprims", "higher_order", "inductor", "_inductor_test", "flex_lib"),
    *("c10d", "c10d_functional", "_c10d_functional", "_dtensor", "fsdp", "symm_mem", "streams", "triton", "profiler"),
    *("onnx", "onnx_symbolic", "quantized", "_quantized", "sparse", "static_runtime", "mkldnn", "cuda", "_test"),
}
"""Namespaces of operators that torch adds when it first needs them, beside those that are known by then."""
_known_operators: set[str] = set()


def noised(weight: torch.Tensor, seed: int) -> torch.Tensor:
    """The weight with noise by that seed."""
    generator = torch.Generator(device=weight.device).manual_seed(seed)
    wide = weight.to(torch.float64)  # 8-bit floats have no arithmetic of their own.
    draw = torch.rand(weight.shape, generator=generator, device=weight.device).mul_(2).sub_(1)
    draw = (draw + torch.where(draw < 0, -1, 1)) * (NOISE / 2)  # As far from nothing as of either sign.
    size = wide.abs()
    away = torch.where(wide == 0, draw, draw.abs() * wide.sign())
    return (wide + torch.where(size > SMALL, size * draw, away)).to(weight.dtype)


def note_operators() -> None:
    """Those that there are before a submission is: asked once, in the zygote, as it takes 3 ms."""
    _known_operators.update(torch._C._dispatch_get_all_op_names())


def kept_elsewhere(folder: Path) -> bool:
    """Whether a source has left what its next load would find: operators, or modules out of files of its own."""
    new = {name.partition("::")[0] for name in torch._C._dispatch_get_all_op_names() if name not in _known_operators}
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())} - {str(folder / FILE_NAME)}
    own = [file for file in files if isinstance(file, str) and file.endswith(".py")]
    return not new <= TORCHS_OWN or any(Path(file).is_relative_to(folder) for file in own)


class _Noise:
    """Adds noise to tensors of one value, each time by another seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._single: list[float] = []

    def add(self, weight: Any) -> None:
        """In place, as it may be known by another name. What cannot be looked at or written to stays as it is."""
        with suppress(Exception):
            values = torch.from_numpy(weight) if isinstance(weight, numpy.ndarray) else weight.detach()
            if not values.is_floating_point() or not bool((values == values.reshape(-1)[0]).all()):
                return
            if values.reshape(-1)[0].item() in self._single:  # Which a copy of one has, be it for each of many.
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

    def made(self, make: Callable[..., Any]) -> Callable[..., Any]:
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
def noised_parameters(seed: int | None, *, widely: bool = False) -> Iterator[None]:
    """Inside, constant parameters that a training would learn have noise from the start; nothing without a seed.

    So have running statistics of norm layers. What is no parameter is left alone, as masks and tables are ones and
    zeros too: but `widely`, where parameters may be made out of it later. Generators are left where they would be.
    """
    if seed is None:
        yield
        return
    noise = _Noise(seed)
    patched: list[tuple[Any, str, Any]] = [
        (nn.Parameter, "__new__", noise.constructed),
        (_NormBase, "reset_running_stats", noise.reset),
        *((init, name, noise.filled) for name in FILLERS),
        *((owner, name, noise.made) for owner, names in MAKERS.items() for name in names if widely),
    ]
    # A tensor's methods are another class's, which takes no others.
    before = [vars(owner).get(name) for owner, name, _ in patched]
    try:
        for owner, name, wrapped in patched:
            setattr(owner, name, wrapped(getattr(owner, name)))
        yield
    finally:
        for (owner, name, _), kept in zip(patched, before, strict=True):
            if kept is not None:
                setattr(owner, name, kept)
            else:
                delattr(owner, name)
