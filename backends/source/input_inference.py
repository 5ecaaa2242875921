"""Guesses inputs for a source without any, from its signature and layers, and tries them by calling it."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from backends.base import Target
from backends.source.error_report import asks_for_gpu, fault, is_out_of_memory, summary, text_of
from backends.source.layer_shapes import embedding_rows, index_shapes, layer_shapes, tower_inputs, weight_shapes
from backends.source.rng_state import seed_everything
from domain.fault import KernelFault
from domain.result import Status

Shape = tuple[int, ...]

PLAIN_SHAPES: tuple[Shape, ...] = ((1024, 1024), (16, 128, 128), (8, 16, 64, 64), (4096,), ())
"""Square first: elementwise work, `x @ x.T` and `a @ b` all accept it."""

MAX_LAYER_SHAPES = 12

INDEX_NAMES = frozenset({"index", "indices", "idx", "ids", "input_ids", "token_ids", "tokens", "label", "labels"})
TARGET_NAMES = frozenset({"target", "targets"})
"""A loss function's targets: values like the prediction's, or classes."""

MASK_NAMES = frozenset({"mask", "attn_mask", "attention_mask", "padding_mask", "key_padding_mask", "src_mask"})
SCALARS: dict[str, int | float | bool] = {"int": 1, "float": 0.5, "bool": True}


@dataclass(frozen=True)
class TensorGuess:
    """One tensor: standard normal, or integers (or bools) in [0, `below`)."""

    shape: Shape
    dtype: torch.dtype
    below: int | None = None

    def draw(self, device: str) -> torch.Tensor:
        if self.below is not None:
            return torch.randint(0, self.below, self.shape, dtype=self.dtype, device=device)
        return torch.randn(self.shape, dtype=torch.float32, device=device).to(self.dtype)

    def __str__(self) -> str:
        if self.dtype is torch.bool:
            content = "coin flips"
        else:
            content = "standard normal" if self.below is None else f"integers below {self.below}"
        return f"{str(self.dtype).removeprefix('torch.')} {list(self.shape)} {content}"


@dataclass(frozen=True)
class InputPlan:
    """A guess for every parameter, by name, in calling order."""

    guesses: tuple[tuple[str, TensorGuess | int | float | bool], ...]

    def draw(self, seed: int, target: Target) -> list[Any]:
        """Draws the inputs under that seed."""
        seed_everything(seed)
        return [guess.draw(target.device) if isinstance(guess, TensorGuess) else guess for _, guess in self.guesses]

    def described(self) -> str:
        """Each parameter with its guess, such as `x float32 [4, 4] standard normal; n = 1`."""
        parts = [f"{name} {guess if isinstance(guess, TensorGuess) else f'= {guess}'}" for name, guess in self.guesses]
        return "; ".join(parts) or "no arguments"


def find_plan(
    function: Callable[..., Any],
    signature: inspect.Signature | None,
    instance: Any,
    target: Target,
    seed: int,
    entry: str,
) -> InputPlan:
    """The first plan with which the function can be called; afterwards its module's buffers are as before.

    Raises KernelFault (RUNTIME_ERROR) with the last error when none fits. Raises the function's own exception where
    other inputs would not help: a bug in the source; no GPU, memory or compilation; or the same error for all inputs.
    """
    module = instance if isinstance(instance, torch.nn.Module) else torch.nn.Module()
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    failures: list[tuple[InputPlan, Exception]] = []
    for plan in _plans(_parameters(signature), module):
        try:
            with torch.no_grad():
                function(*plan.draw(seed, target))
            if target.is_cuda:
                torch.cuda.synchronize()
        except Exception as error:
            if isinstance(error, KernelFault) or _is_final(error, target):
                raise
            # The frames of its traceback would keep the inputs alive.
            traceback.clear_frames(error.__traceback__)
            failures.append((plan, error))
            continue
        for name, buffer in module.named_buffers():
            if name in buffers:
                buffer.copy_(buffers[name])
        return plan
    raise _not_of_the_inputs([error for _, error in failures], target) or _nothing_fits(entry, failures)


def _is_final(error: Exception, target: Target) -> bool:
    """Whether further tries are pointless: the process lost the device, or never had one."""
    return (not target.is_cuda and asks_for_gpu(error)) or (
        "CUDA error" in text_of(error) and not is_out_of_memory(error)
    )


def _not_of_the_inputs(errors: list[Exception], target: Target) -> Exception | None:
    """The error that no other input would have avoided, when there is one."""
    bug = next((error for error in errors if _is_bug(error)), None)
    if len({summary(error) for error in errors}) == 1:
        return errors[-1]
    statuses = {fault(error, "", Path(), target).status for error in errors}
    return bug or (None if Status.RUNTIME_ERROR in statuses else errors[-1])


def _is_bug(error: Exception) -> bool:
    """Whether a name is missing in the source itself, not in a guessed argument."""
    # Triton's interpreter wraps what a kernel raised.
    if type(error).__name__ == "InterpreterError" and isinstance(error.__cause__, NameError):
        error = error.__cause__
    if isinstance(error, AttributeError):
        return not isinstance(error.obj, (torch.Tensor, int, float))
    # An unbound local may get its value in a branch for another shape.
    return isinstance(error, (NameError, ImportError)) and not isinstance(error, UnboundLocalError)


def _nothing_fits(entry: str, failures: list[tuple[InputPlan, Exception]]) -> KernelFault:
    plan, error = next(
        ((plan, error) for plan, error in failures if "shape" in text_of(error) or "size" in text_of(error)),
        failures[-1],
    )
    return KernelFault(
        Status.RUNTIME_ERROR,
        f"could not determine inputs for {entry}: none of the {len(failures)} sets of shapes tried fits; give them in "
        f"`io`, or define get_inputs(). With {plan.described()}: {summary(error)}",
        "\n".join(f"{plan.described()}: {summary(error)}" for plan, error in failures),
        compiled=True,
    )


def _parameters(signature: inspect.Signature | None) -> list[inspect.Parameter]:
    """The required parameters; the variadic one where none is required."""
    if signature is None:
        return [inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY)]
    positional = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = [p for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL]
    return [p for p in positional if p.default is p.empty] or variadic


def _plans(parameters: list[inspect.Parameter], module: torch.nn.Module) -> Iterator[InputPlan]:
    scalars = [_scalar(parameter) for parameter in parameters]
    names = [p.name for p, scalar in zip(parameters, scalars, strict=True) if scalar is None]
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.get_default_dtype())
    tried = set()
    for guesses in _tensor_guesses(names, module, dtype):
        if tuple(guesses) not in tried:
            tried.add(tuple(guesses))
            tensors = iter(guesses)
            yield InputPlan(
                tuple(
                    (p.name, next(tensors) if scalar is None else scalar)
                    for p, scalar in zip(parameters, scalars, strict=True)
                )
            )


def _scalar(parameter: inspect.Parameter) -> int | float | bool | None:
    annotation = parameter.annotation
    return SCALARS.get(annotation if isinstance(annotation, str) else getattr(annotation, "__name__", ""))


def _tensor_guesses(names: list[str], module: torch.nn.Module, dtype: torch.dtype) -> Iterator[list[TensorGuess]]:
    """Guesses for the named tensors: from each layer, a layer for each tensor, from weights, then plain shapes."""
    if not names:
        yield []
        return
    shapes = [shape for layer in module.modules() for shape in layer_shapes(layer)][:MAX_LAYER_SHAPES]
    if rows := embedding_rows(module):
        yield from ([TensorGuess(shape, torch.int64, rows) for _ in names] for shape in index_shapes(rows))
    for shape in shapes:
        yield from _same_shape(names, shape, dtype)
    towers = tower_inputs(module)
    if 1 < len(names) <= len(towers):
        yield [TensorGuess(shape, dtype if rows is None else torch.int64, rows) for shape, rows in towers[: len(names)]]
    for shape in (*weight_shapes(module), *PLAIN_SHAPES):
        yield from _same_shape(names, shape, dtype)
    yield [TensorGuess(index_shapes()[0], torch.int64, 2) for _ in names]


def _same_shape(names: list[str], shape: Shape, dtype: torch.dtype) -> Iterator[list[TensorGuess]]:
    """All of one shape, but indices where the name says so; then also classes and masks by name; then vectors for the
    trailing ones (weight, bias)."""
    like = TensorGuess(shape, dtype)
    if shape:
        for index in (TensorGuess(shape[:-1], torch.int64, min(shape)), TensorGuess(shape, torch.int64, min(shape))):
            if any(name in INDEX_NAMES for name in names):
                yield [index if name in INDEX_NAMES else like for name in names]
    yield [like for _ in names]
    if not shape:
        return
    index, flags = TensorGuess(shape[:-1], torch.int64, min(shape)), TensorGuess(shape, torch.bool, 2)
    by_name = dict.fromkeys(INDEX_NAMES | TARGET_NAMES, index) | dict.fromkeys(MASK_NAMES, flags)
    yield [by_name.get(name, like) for name in names]
    vector = TensorGuess(shape[-1:], dtype)
    for vectors in range(1, min(len(names), 3)):
        yield [like] * (len(names) - vectors) + [vector] * vectors
