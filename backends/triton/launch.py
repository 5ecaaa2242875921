"""Binds a contract's arguments to a Triton kernel's parameters and launches it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from triton.compiler.errors import CompilationError

from backends.base import ContractLaunch
from backends.source.triton_errors import is_rejection, kernel_line, reason_of
from domain.contract import Argument, Dimension, IOContract
from domain.expression import ExpressionError, dimension
from domain.fault import KernelFault
from domain.result import Status

DEFAULT_GRID: tuple[Dimension, ...] = (1,)


def layers(kernel: Any) -> Iterator[Any]:
    """The kernel and what it wraps, such as an autotuner around heuristics around a jitted function."""
    while True:
        yield kernel
        inner = getattr(kernel, "fn", None)
        if inner is None or inspect.isfunction(inner):
            return
        kernel = inner


def tuned_names(kernel: Any) -> set[str]:
    """Parameters that an autotuner's configurations or heuristics supply."""
    names: set[str] = set()
    for layer in layers(kernel):
        names |= {name for config in getattr(layer, "configs", ()) for name in config.kwargs}
        names |= set(getattr(layer, "values", ()))
    return names


def is_autotuned(kernel: Any) -> bool:
    return any(hasattr(layer, "configs") for layer in layers(kernel))


def function_of(kernel: Any) -> Callable[..., Any]:
    """The Python function that was decorated."""
    *_, innermost = layers(kernel)
    function: Callable[..., Any] = innermost.fn
    return function


class Unbound(Exception):
    """The contract's arguments do not fit the kernel's parameters; the text says how."""


@dataclass(frozen=True)
class Binding:
    """The destination of each argument: indexes into the contract's arguments, by position and by parameter name."""

    positional: tuple[int, ...]
    named: tuple[tuple[str, int], ...]


def bind(kernel: Any, arguments: tuple[Argument, ...]) -> Binding:
    """Assigns meta arguments to the parameter of their name, all others to the free parameters in order.

    Raises Unbound.
    """
    parameters = inspect.signature(function_of(kernel)).parameters
    tuned = tuned_names(kernel)
    slots: dict[str, int] = {}
    for index, argument in enumerate(arguments):
        if argument.is_meta and argument.name in tuned:
            raise Unbound(
                f"'{argument.name}' is chosen by the kernel's autotuner or heuristics: leave it out of io.args"
            )
        if argument.is_meta and argument.name in parameters:
            slots[argument.name] = index
    free = iter([name for name in parameters if name not in tuned and name not in slots])
    for index, argument in enumerate(arguments):
        if index in slots.values():
            continue
        name = next(free, None)
        if name is None:
            raise Unbound(f"there is no parameter left for argument '{argument.name}'")
        slots[name] = index
    missing = [name for name in free if parameters[name].default is inspect.Parameter.empty]
    if missing:
        raise Unbound(f"no argument is given for {', '.join(missing)}")
    positional: list[int] = []
    for name in parameters:
        if name not in slots:
            break
        positional.append(slots.pop(name))
    return Binding(tuple(positional), tuple(slots.items()))


class TritonLaunch(ContractLaunch):
    """One kernel under one contract, callable with the contract's arguments in order."""

    def __init__(self, name: str, kernel: Any, io: IOContract, binding: Binding) -> None:
        self.name = name
        self.autotuned = is_autotuned(kernel)
        self._kernel = kernel
        self._binding = binding
        self.follow(io)

    def follow(self, io: IOContract) -> None:
        self._io = io
        self._options = _options(self._kernel, io)
        self._scalars = [(i, argument.value) for i, argument in enumerate(io.args) if not argument.is_tensor]
        self._launch = self._kernel[self._grid(io.scalars())]

    def __call__(self, *args: Any) -> None:
        for index, value in self._scalars:
            if args[index] is not value and args[index] != value:
                self._take_scalars(args)
                break
        binding = self._binding
        try:
            self._launch(
                *[args[index] for index in binding.positional],
                **{name: args[index] for name, index in binding.named},
                **self._options,
            )
        except Exception as error:
            if is_rejection(error):
                raise compile_fault(self.name, error) from error
            raise

    def warm_up(self, stand_ins: list[Any]) -> Any:
        """Compiles for arguments like these without launching; returns the result of the kernel's own `warmup`."""
        binding = self._binding
        return self._kernel.warmup(
            *[stand_ins[index] for index in binding.positional],
            **{name: stand_ins[index] for name, index in binding.named},
            **self._options,
            grid=(1,),
        )

    def _take_scalars(self, args: tuple[Any, ...]) -> None:
        self._scalars = [(index, args[index]) for index, _ in self._scalars]
        named = {self._io.args[index].name: value for index, value in self._scalars}
        self._launch = self._kernel[self._grid(_numbers(named))]

    def _grid(self, scalars: Mapping[str, int | float]) -> Any:
        """Numbers where the contract's scalars determine it; a function where the autotuner's parameters contribute."""
        dimensions = self._io.launch.grid or DEFAULT_GRID
        tuned = tuned_names(self._kernel)
        if not tuned:
            return _sizes(dimensions, scalars)
        return lambda meta: _sizes(dimensions, {**scalars, **_numbers(meta)})


def _options(kernel: Any, io: IOContract) -> dict[str, int]:
    """num_warps and num_stages, unless the autotuner's configurations set them."""
    if is_autotuned(kernel):
        return {}
    options = {"num_warps": io.launch.num_warps, "num_stages": io.launch.num_stages}
    return {name: value for name, value in options.items() if value is not None}


def _sizes(dimensions: tuple[Dimension, ...], scalars: Mapping[str, int | float]) -> tuple[int, ...]:
    try:
        sizes = tuple(dimension(size, scalars) for size in dimensions)
    except ExpressionError as error:
        raise KernelFault(Status.CONTRACT_MISMATCH, f"launch.grid: {error}", compiled=True) from error
    if min(sizes) < 1:
        raise KernelFault(Status.RUNTIME_ERROR, f"launch.grid is {sizes}: every dimension is at least 1", compiled=True)
    return sizes


def _numbers(values: Mapping[str, Any]) -> dict[str, int | float]:
    return {name: value for name, value in values.items() if isinstance(value, (int, float))}


def compile_fault(name: str, error: BaseException) -> KernelFault:
    """Triton's reason becomes the message; the log has its excerpts, from the kernel to its helper functions.

    Another error has its type before it, as in a traceback: the referee looks there for what the machine did.
    """
    is_excerpt = isinstance(error, CompilationError)
    excerpts, reason = [str(error) if is_excerpt else f"{type(error).__name__}: {error}"], error
    while (cause := reason.__cause__) is not None:
        reason = cause
        if isinstance(reason, CompilationError):
            excerpts.append(str(reason))
    message = f"compiling kernel {name}: {reason_of(str(reason)) or type(reason).__name__}{kernel_line(excerpts[-1])}"
    return KernelFault(Status.COMPILE_ERROR, message, "\n\n".join(excerpts))
