"""Matches values to a callable's parameters: contract arguments, constructor arguments and the source's input
makers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from domain.contract import IOContract
from domain.value import Unserializable, leaves


def contract_arguments(signature: inspect.Signature | None, io: IOContract | None) -> list[int] | None:
    """Indexes of the contract's arguments to pass by position; None for all.

    Outputs are skipped where the callable does not take all arguments: it returns its outputs then. Scalars are skipped
    too where the callable names none of them. One contract may thus serve a kernel that takes sizes and a function that
    derives them from the tensors.
    """
    if io is None or signature is None or _binds(signature, len(io.args)):
        return None
    inputs = [index for index, argument in enumerate(io.args) if argument.role != "output"]
    if _binds(signature, len(inputs)):
        return inputs
    tensors = [index for index in inputs if io.args[index].is_tensor]
    named = any(argument.name in signature.parameters for argument in io.args if not argument.is_tensor)
    return tensors if not named and _binds(signature, len(tensors)) else None


def borrowed_arguments(signature: inspect.Signature | None, args: Sequence[Any]) -> list[int] | None:
    """Indexes of another kernel's arguments to pass by position; None for all.

    Serves a callable with neither a contract nor inputs. Scalars are skipped where it takes only the tensors.
    """
    if signature is None or _binds(signature, len(args)):
        return None
    tensors = [index for index, argument in enumerate(args) if isinstance(argument, torch.Tensor)]
    return tensors if _binds(signature, len(tensors)) else None


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The callable's signature; None where Python cannot tell it, as for builtins and methods that forgot `self`."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def required_names(signature: inspect.Signature | None) -> list[str]:
    """The parameters that a call by position has to give."""
    parameters = signature.parameters.values() if signature is not None else ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in positional and p.default is p.empty]


def input_maker(name: str, holders: Sequence[Any], *, by_case: bool = False) -> Callable[..., Any] | None:
    """The first function of that name, among the holders' attributes, that can be called without arguments.

    With `by_case` it may also need keyword arguments, which cases give.
    """
    for holder in holders:
        maker: Any = getattr(holder, name, None)
        signature = signature_of(maker) if callable(maker) else None
        if signature is not None and (_binds(signature, 0) or (by_case and not isinstance(holder, type))):
            return maker  # type: ignore[no-any-return]
    return None


def construct(target: Callable[..., Any], own: list[Any] | None, reference_arguments: list[Any] | None) -> Any:
    """An instance made from the source's own constructor arguments, else from the reference's, else without arguments.

    The reference's arguments are used only if they fit and all of them could be serialised. Arguments are `[a, b]`, one
    dict of keyword arguments, or `[[a, b], {"c": d}]`.
    """
    if own is not None:
        args, keywords = _arguments(target, own)
        return target(*args, **keywords)
    if reference_arguments is not None and not leaves(reference_arguments, Unserializable):
        args, keywords = _arguments(target, reference_arguments)
        if _fits(target, args, keywords):
            return target(*args, **keywords)
    return target()


def by_position(signature: inspect.Signature | None, named: dict[Any, Any]) -> list[Any] | None:
    """Named arguments in calling order, with defaults in the gaps; None where they cannot be passed by position."""
    parameters = list(signature.parameters.values()) if signature is not None else []
    last = max((index for index, parameter in enumerate(parameters) if parameter.name in named), default=-1)
    leading = parameters[: last + 1]
    required = {parameter.name for parameter in parameters if _is_required(parameter)}
    if any(parameter.kind is not parameter.POSITIONAL_OR_KEYWORD for parameter in leading):
        return None
    if named.keys() - {parameter.name for parameter in leading} or required - named.keys():
        return None
    return [named.get(parameter.name, parameter.default) for parameter in leading]


def keyword_only(signature: inspect.Signature | None, named: dict[Any, Any]) -> list[str]:
    """Those of the named arguments that no call by position can give; empty if some name no parameter."""
    parameters = signature.parameters if signature is not None else {}
    if named.keys() - parameters.keys():
        return []
    return [name for name in named if parameters[name].kind is inspect.Parameter.KEYWORD_ONLY]


def _is_required(parameter: inspect.Parameter) -> bool:
    variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not variadic


def _arguments(target: Callable[..., Any], init: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    match init:
        case [dict() as keywords] if keywords and _fits(target, [], keywords):
            return [], keywords
        case [list() | tuple() as args, dict() as keywords]:
            # A constructor may also take a list and a dict, but parameters that match come first.
            if _fits(target, list(args), keywords):
                return list(args), keywords
    return init, {}


def _fits(target: Callable[..., Any], args: list[Any], keywords: dict[Any, Any]) -> bool:
    if not all(isinstance(key, str) for key in keywords):
        return False
    if getattr(target, "__init__", None) is torch.nn.Module.__init__:
        return not args and not keywords  # Its signature accepts anything, and the constructor then refuses it.
    signature = signature_of(target)
    try:
        return signature is not None and signature.bind(*args, **keywords) is not None
    except TypeError:
        return False


def _binds(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True
