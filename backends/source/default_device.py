"""Runs a source's own makers of tensors with the device under test as torch's default, or else on the host."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from backends.base import Target
from domain.inputs import DrawOn

MAX_DEPTH = 4
"""Maximum nesting of containers and objects in which `keeps_other_tensors` searches."""


class DefaultDevice:
    """Runs the makers of one kind for one source. Once one needed the host, later ones run there at once.

    Drawing on the host and copying takes a thousand times as long as drawing on a GPU, and the job holds the device
    meanwhile.
    """

    def __init__(self, target: Target) -> None:
        self._device = target.device
        self.used = DrawOn.DEVICE if target.is_cuda and target.draw_on is DrawOn.DEVICE else DrawOn.HOST
        """Where the last maker ran; before the first, where it will be tried."""

    def run(
        self,
        make: Callable[[], Any],
        *,
        suits: Callable[[Any], bool] = lambda value: True,
        is_final: Callable[[Exception], bool] = lambda error: False,
    ) -> Any:
        """The value of `make()`. A maker that fails on the device, or whose result does not suit, runs on the host.

        Some sources need the host: they mix in tensors of numpy, of a host generator or of an explicit device. Raises
        the host's exception, or at once one that `is_final` says has nothing to do with the device.
        """
        if self.used is DrawOn.DEVICE:
            try:
                with _default_device(self._device):
                    value = make()
                if suits(value):
                    return value
                del value
                gc.collect()  # A module that holds a method of its own refers to itself, and would stay on the device.
            except Exception as error:
                if is_final(error):
                    raise
            self.used = DrawOn.HOST
            if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                torch.cuda.empty_cache()
        return make()


@contextmanager
def _default_device(device: str) -> Iterator[None]:
    """A block with that default device. If the block sets another one itself, that one stays.

    `with torch.device(...)` would undo the block's own `torch.set_default_device`, and a later one would restore ours.
    """
    before = _default_context()
    torch.set_default_device(device)
    own = _default_context()
    try:
        yield
    finally:
        if _default_context() is own:
            torch.set_default_device(before.device if before is not None else None)


def _default_context() -> Any:
    """torch's context of `torch.set_default_device`, which its public functions do not tell apart; None without one."""
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)


def keeps_other_tensors(instance: Any) -> bool:
    """Whether an object holds tensors on a device that are neither parameters nor buffers of a module.

    A module's `to` does not move these: constructed on the host, they would stay there, as some calls need (lengths,
    offsets).
    """
    return _holds_device_tensor(instance, MAX_DEPTH, set())


def _holds_device_tensor(value: Any, depth: int, seen: set[int]) -> bool:
    if isinstance(value, torch.Tensor):
        return value.device.type != "cpu"
    if depth < 0 or id(value) in seen:
        return False
    seen.add(id(value))
    if isinstance(value, torch.nn.Module):
        own = (item for name, item in vars(value).items() if name not in ("_parameters", "_buffers", "_modules"))
        # Submodules begin anew: a deep model is no deep container.
        return any(_holds_device_tensor(item, depth - 1, seen) for item in own) or any(
            _holds_device_tensor(child, MAX_DEPTH, seen) for child in value.children()
        )
    match value:
        case dict():
            members = list(value.values())
        case list() | tuple() | set():
            members = list(value)
        case type() | FunctionType() | BuiltinFunctionType() | MethodType() | ModuleType():
            return False
        case _:
            members = list(getattr(value, "__dict__", {}).values())
    return any(_holds_device_tensor(item, depth - 1, seen) for item in members)
