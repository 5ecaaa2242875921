"""Has Triton's interpreter launch a kernel as its runtime does: with its grid, and a configuration of its autotuner."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace
from functools import cache
from typing import Any

import torch
import triton
from torch._subclasses.fake_tensor import FakeTensor
from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.interpreter import GridExecutor, InterpretedFunction, interpreter_builder

from backends.source.error_report import NotInterpreted, asks_for_gpu

_original_call = GridExecutor.__call__
_original_run = InterpretedFunction.run
_original_autotuned_run = Autotuner.run


def install() -> None:
    """Patches this process and its forks."""
    InterpretedFunction.run = _run
    GridExecutor.__call__ = _launch
    Autotuner.run = _run_first_configuration


def _run(function: Any, *args: Any, **kwargs: Any) -> None:
    """Has assertions count where they do on a GPU: where the launch, the kernel or the environment asks for it."""
    asked = kwargs.get("debug", function.kwargs.get("debug")) or triton.knobs.runtime.debug
    interpreter_builder.options = replace(interpreter_builder.options, debug=bool(asked))
    _original_run(function, *args, **kwargs)


def _launch(executor: Any, *args: Any, **kwargs: Any) -> None:
    """A grid may be any sequence, or a function of the arguments as the caller gave them.

    Raises NotInterpreted where torch.compile traces the launch: its tensors have no numbers to compute with.
    """
    if _is_traced((*args, *kwargs.values())):
        raise NotInterpreted("a launch that torch.compile traces")
    if callable(executor.grid):
        named = {name: value for name, value in kwargs.items() if name in executor.arg_names}
        executor.grid = executor.grid(inspect.getcallargs(executor.fn, *args, **named))
    if isinstance(executor.grid, int):
        raise TypeError(f"the grid is {executor.grid}, and has to be a sequence, such as ({executor.grid},)")
    executor.grid = tuple(executor.grid)
    # Dynamo follows the calls of a compiled function, and fails at the interpreter's.
    run = _outside_dynamo() if "torch._dynamo" in sys.modules else _original_call
    run(executor, *args, **kwargs)


def _is_traced(value: Any) -> bool:
    """Whether an argument is a fake tensor, or has one: a tuple, a descriptor, or a tensor that Triton reinterprets."""
    if isinstance(value, tuple):
        return any(map(_is_traced, value))
    return isinstance(getattr(value, "base", value), FakeTensor)


@cache
def _outside_dynamo() -> Any:
    """The interpreter's own launch, which Dynamo does not follow. Made late, as making it imports Dynamo."""
    return torch.compiler.disable(_original_call)  # type: ignore[no-untyped-call]


def _run_first_configuration(autotuner: Any, *args: Any, **kwargs: Any) -> Any:
    """An interpreter has nothing to measure, and the autotuner would query a GPU."""
    every = autotuner.configs
    autotuner.nargs = dict(zip(autotuner.arg_names, args, strict=False))
    autotuner.configs = _allowed(autotuner, kwargs)[:1]
    for config in autotuner.configs:
        if conflicts := kwargs.keys() & config.kwargs.keys():
            # Triton says so before it measures, and with one configuration it does not measure.
            raise ValueError(f"Conflicting meta-parameters: {', '.join(sorted(conflicts))}")
    try:
        return _original_autotuned_run(autotuner, *args, **kwargs)
    finally:
        autotuner.configs = every


def _allowed(autotuner: Any, kwargs: dict[str, Any]) -> list[Config]:
    """The configurations that the source allows for these arguments: others may be wrong. All, where it asks a GPU."""
    try:
        return list(autotuner.prune_configs(kwargs))
    except Exception as error:
        if asks_for_gpu(error):
            return list(autotuner.configs)
        raise
