"""Has torch.compile compile for a GPU that is not there: what Inductor makes is cached, and the graph runs as it is.

Inductor keys its cache by the card's name, and by the graph with its inputs' layouts. It compiles each graph only if
that takes no measurement: a graph for which it would time variants is left to the run.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from backends.binary.occupancy import WARP
from backends.dry_run.fake_tensors import DEVICE

Around = Callable[[str, Callable[[], Any]], Any]
_OF_DEVICE = (
    *("current_device", "set_device", "device_count", "stream", "current_stream", "set_stream", "synchronize"),
    *("get_device_properties", "memory_allocated", "is_bf16_supported"),
)
"""Functions of torch.cuda that Dynamo's interface to the device has copies of."""
_TUNED = ("autotune", "tuning")
"""Parts of the names of options that have Inductor time variants."""


def pretend_inductor(around: Around, note_failure: Callable[[BaseException], None]) -> None:
    """Replaces functions of Inductor in this process for good. `around(name, compile)` performs each compilation.

    `note_failure` gets an exception of a compilation: the graph is not cached then, and runs all the same.
    """
    interface = importlib.import_module("torch._dynamo.device_interface").CudaInterface
    for name in _OF_DEVICE:
        setattr(interface, name, staticmethod(getattr(torch.cuda, name)))
    interface.exchange_device = interface.maybe_exchange_device = staticmethod(lambda device: DEVICE.index)
    interface.get_raw_stream = staticmethod(lambda device: 0)
    runtime = "torch._inductor.runtime"
    helpers: Any = importlib.import_module(f"{runtime}.triton_helpers")
    helpers.set_driver_to_gpu = lambda: None
    importlib.import_module(f"{runtime}.static_triton_launcher").StaticallyLaunchedCudaKernel.C_impl = _Launcher
    benchmarking = importlib.import_module(f"{runtime}.benchmarking")
    for benchmarker in (benchmarking.Benchmarker, benchmarking.TritonBenchmarker, benchmarking.InductorBenchmarker):
        benchmarker.benchmark = benchmarker.benchmark_gpu = _measured
    folder = importlib.import_module("torch._inductor.fx_passes.joint_graph").UniformValueConstantFolder
    folder._deduce_value = _on_host(folder._deduce_value)
    wrapper: Any = torch._TorchCompileInductorWrapper
    compile_graph = wrapper.__call__

    def compiled(self: Any, graph: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
        if not any(part in name for name in self.config for part in _TUNED):
            try:
                around("torch.compile", lambda: compile_graph(self, graph, inputs, **options))
            except (Exception, _Measured) as error:
                note_failure(error)
        return graph.forward

    wrapper.__call__ = compiled


class _Measured(BaseException):
    """Inductor asked for a time on the card. No `except Exception` of its own catches it."""


def _measured(*args: Any, **kwargs: Any) -> NoReturn:
    raise _Measured("torch.compile would time variants")


class _Launcher:
    """The functions of torch's library that load and launch a kernel."""

    @staticmethod
    def _load_kernel(path: str, name: str, shared: int, device: int) -> tuple[int, ...]:
        """Handles of module (from torch 2.13 on) and function, the kernel's registers and spills."""
        handles = 2 if hasattr(torch._C._StaticCudaLauncher, "_unload_kernel") else 1
        return *(1,) * handles, WARP, 0

    @staticmethod
    def _unload_kernel(module: int) -> None:
        pass


class _Host(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes tensors on the host that were to be on a GPU: one number each, for constants."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("cpu")
        return func(*args, **kwargs)


def _on_host(fold: Callable[..., Any]) -> Callable[..., Any]:
    def folded(*args: Any) -> Any:
        with _Host():  # type: ignore[no-untyped-call]
            return fold(*args)

    return folded
