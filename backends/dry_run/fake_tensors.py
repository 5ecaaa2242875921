"""Tensors without content on a GPU that is not there: torch's fake tensors, adapted to a process without CUDA."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from backends.dry_run.fake_backward import run_backward, set_materialize_grads

DEVICE = torch.device("cuda:0")

_CUDA, _META, _KINDS = 1, 14, 15
"""Indexes and number of kinds of device (c10/core/DeviceType.h)."""
_GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
"""c10::impl::device_guard_impl_registry, one pointer for each kind of device."""
_IMPORTED_LATE = (
    "torch._dynamo",
    "torch._meta_registrations",
    "torch._decomp",
    "torch._refs",
    "torch.fx.experimental.symbolic_shapes",
)
"""Modules that fake tensors import at their first use, in 2 s."""


_OF_TORCH = frozenset(torch.library._impls)
"""Operators in Python that torch has, each with the key of its code."""
_NAMESPACES = ("prims", "rngprims", "inductor")
"""Torch's own namespaces that it fills late: `_OF_TORCH` lacks their operators."""


def preload() -> None:
    """Imports what fake tensors import late. Call it in the zygote, which must not enter the fake world itself."""
    for name in _IMPORTED_LATE:
        importlib.import_module(name)


@contextmanager
def fake_world(note_failure: Callable[[BaseException], None]) -> Iterator[None]:
    """A block in which new tensors are fake, and those of the device `cuda` need no GPU; its process ends after it.

    `note_failure` gets each exception of an operation: it may be due to the tensors' missing content. A source that
    reads one number of a tensor gets a usual one.
    """
    _set_device_guard()
    torch.nn.Module._apply = _apply  # type: ignore[method-assign]
    torch.autograd._engine_run_backward = run_backward  # type: ignore[assignment, attr-defined]
    torch.autograd.function.FunctionCtx.set_materialize_grads = set_materialize_grads  # type: ignore[assignment]
    fake_tensor.init_gpu_context = lambda device: None  # type: ignore[assignment]  # It would make a real tensor on the GPU.
    FakeTensorMode.avoid_device_init = property(lambda mode: True)  # type: ignore[assignment]
    for operator in torch._ops._higher_order_ops.values():
        if FakeTensorMode in operator.python_key_table:
            operator.python_key_table[_FakeTensors] = operator.python_key_table[FakeTensorMode]
    _replace_methods()
    with _FakeTensors(note_failure):
        yield


class _FakeTensors(FakeTensorMode):  # type: ignore[no-untyped-call]
    def __init__(self, note_failure: Callable[[BaseException], None]) -> None:
        # Modules of torch hold a few real tensors, and a source may get some from numpy.
        super().__init__(allow_non_fake_inputs=True)
        self._note_failure = note_failure

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (key := _own_code(func)) is not None:
            with self:
                return func._op_dk(key, *args, **kwargs)
        try:
            return super().__torch_dispatch__(func, types, args, kwargs)
        except BaseException as error:
            self._note_failure(error)
            if isinstance(error, DataDependentOutputException):
                return _usual(func, args)
            if isinstance(error, DynamicOutputShapeException) and func in _LARGEST:
                with self:
                    return _LARGEST[func](*args, **kwargs)
            raise


def _own_code(func: Any) -> Any:
    """The key of an operator's code for the GPU if that is the source's own; its fake form would launch nothing."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace in _NAMESPACES:
        return None
    for key in ("CUDA", "CompositeExplicitAutograd"):
        code = f"{func._schema.name.replace('::', '/')}/{key}"
        if code in torch.library._impls and code not in _OF_TORCH:
            return getattr(torch._C.DispatchKey, key)
    return None


def _all_unique(tensor: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, ...]:
    numbers = tensor.new_empty(tensor.shape, dtype=torch.int64)
    return tensor.new_empty(tensor.numel()), numbers, numbers.view(-1)


_LARGEST: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.nonzero.default: lambda tensor: tensor.new_empty((tensor.numel(), tensor.dim()), dtype=torch.int64),
    torch.ops.aten.masked_select.default: lambda tensor, mask: (tensor * mask).view(-1),
    torch.ops.aten._unique2.default: _all_unique,
}
"""Outputs whose shape the content decides, at their largest: all elements are chosen, and no two are equal."""


def _usual(func: Any, args: Any) -> bool | int | float:
    """A number that a tensor's content may well be: two tensors are equal, sizes are multiples of 16."""
    if func is not torch.ops.aten._local_scalar_dense.default:
        return True
    (tensor,) = args
    if tensor.is_floating_point():
        return 1.0
    return True if tensor.dtype is torch.bool else 16


def _replace_methods() -> None:
    """Gives the device `cuda` its index in `Tensor.to` and `Tensor.cuda`, which would ask CUDA for the current one."""
    stock = torch.Tensor.to

    def to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return stock(tensor, *map(_indexed, args), **{name: _indexed(value) for name, value in kwargs.items()})

    methods: dict[str, Any] = {
        "to": to,
        "cuda": lambda tensor, *args, **kwargs: stock(tensor, DEVICE),
        "pin_memory": lambda tensor, *args: tensor,
        "record_stream": lambda tensor, stream: None,
    }
    for name, method in methods.items():
        setattr(torch.Tensor, name, method)


def _indexed(value: Any) -> Any:
    if isinstance(value, str | torch.device) and str(value) == DEVICE.type:
        return DEVICE
    return value


def _apply(module: torch.nn.Module, change: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
    """`torch.nn.Module._apply`, which cannot exchange a fake parameter in place: this one puts a new one there."""
    for child in module.children() if recurse else ():
        child._apply(change)  # type: ignore[no-untyped-call]
    for name, parameter in module._parameters.items():
        if parameter is not None:
            changed = change(parameter.detach())
            module._parameters[name] = torch.nn.Parameter(changed, requires_grad=parameter.requires_grad)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = change(buffer)
    return module


def _set_device_guard() -> None:
    """Lets torch's C++ code switch to a device that is not there, which changes nothing."""
    torch._C._ensureCUDADeviceGuardSet()
    if torch.version.cuda is None:
        # torch's function replaces a guard, and a torch without CUDA has none. The meta device's guard does nothing.
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        guards = (ctypes.c_void_p * _KINDS).in_dll(library, _GUARDS)
        guards[_CUDA] = guards[_META]
