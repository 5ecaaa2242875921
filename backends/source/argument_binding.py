"""Matches values to a callable's parameters: contract arguments, constructor arguments and the source's input
makers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from backends.base import ReferenceArguments
from domain.contract import IOContract
from domain.value import Unserializable, leaves


@dataclass(frozen=True)
class Passing:
    """How a call passes its arguments: those at `indexes`, or all; the last of them by `names`, others by position."""

    indexes: list[int] | None = None
    names: tuple[str, ...] = ()


def contract_arguments(signature: inspect.Signature | None, io: IOContract) -> Passing:
    """How a call passes the contract's arguments: those of keyword-only parameters' names by name.

    Outputs are skipped where the callable does not take all arguments: it returns its outputs then. Scalars are skipped
    too where the callable names none of them. One contract may thus serve a kernel that takes sizes and a function that
    derives them from the tensors.
    """
    if signature is None:
        return Passing()
    every = list(range(len(io.args)))
    inputs = [index for index in every if io.args[index].role != "output"]
    tensors = [index for index in inputs if io.args[index].is_tensor]
    named = any(argument.name in signature.parameters for argument in io.args if not argument.is_tensor)
    names = [argument.name for argument in io.args]
    return _by_name(signature, names, (every, inputs) if named else (every, inputs, tensors)) or Passing()


def borrowed_arguments(
    signature: inspect.Signature | None, args: Sequence[Any], borrowed: ReferenceArguments
) -> Passing:
    """How a callable without a contract is passed the reference's arguments.

    Scalars are skipped where it takes only the tensors. Keyword-only parameters get the arguments of their names; where
    the reference's names do not suffice, those without a default get the last ones.
    """
    every = list(range(len(args)))
    tensors = [index for index in every if isinstance(args[index], torch.Tensor)]
    names, named = borrowed.input_names[: len(args)], None
    if signature is not None and len(names) == len(args):
        named = _by_name(signature, names, (every, tensors))
    skips = not binds(signature, len(args)) and binds(signature, len(tensors))
    return named or Passing(tensors if skips else None, keywords(signature))


def _by_name(signature: inspect.Signature, names: Sequence[str], possible: Iterable[Sequence[int]]) -> Passing | None:
    """The first of the possible selections that a call can pass, with keyword-only parameters by name; None if none."""
    by_keyword = {each.name for each in signature.parameters.values() if each.kind is each.KEYWORD_ONLY}
    for indexes in possible:
        last = [index for index in indexes if names[index] in by_keyword]
        keyword_names = tuple(names[index] for index in last)
        if _fits_call(signature, len(indexes), keyword_names):
            passed = [*(index for index in indexes if index not in last), *last]
            return Passing(None if passed == list(range(len(names))) else passed, keyword_names)
    return None


def input_names(signature: inspect.Signature | None, io: IOContract | None = None) -> list[str]:
    """Names of the parameters that the values of a call reach, in their order, or of a contract's inputs.

    Values beyond them have unknown names; a call of fewer values reaches the first ones.
    """
    if io is not None and io.args:
        return [each.name for each in io.args if not each.is_meta and each.role != "output"]
    # Before keyword-only parameters, any number of those with a default may be left out.
    return required_names(signature) if keywords(signature) else value_names(signature)


def value_names(signature: inspect.Signature | None) -> list[str]:
    """Names of the parameters that values reach, in their order; empty if one has none."""
    order = _order(signature)
    return [] if any(each.kind is each.VAR_POSITIONAL for each in order) else [each.name for each in order]


def keywords(signature: inspect.Signature | None) -> tuple[str, ...]:
    """The keyword-only parameters without a default: they take the last values of a call. Others keep their default."""
    return tuple(each.name for each in _order(signature) if each.kind is each.KEYWORD_ONLY)


def binds(signature: inspect.Signature | None, count: int) -> bool:
    """Whether a call can pass so many values; true where the signature is not known."""
    return signature is None or _fits_call(signature, count, keywords(signature))


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The callable's signature; None where Python cannot tell it, as for builtins and methods that forgot `self`."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def required_names(signature: inspect.Signature | None) -> list[str]:
    """The parameters to which a call has to give values, in the order in which it gives them."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in _order(signature) if each.default is each.empty and each.kind not in variadic]


def input_maker(name: str, holders: Sequence[Any], *, by_case: bool = False) -> Callable[..., Any] | None:
    """The first function of that name, among the holders' attributes, that can be called without arguments.

    With `by_case` it may also need keyword arguments, which cases give.
    """
    for holder in holders:
        maker: Any = getattr(holder, name, None)
        signature = signature_of(maker) if callable(maker) else None
        if signature is not None and (binds(signature, 0) or (by_case and not isinstance(holder, type))):
            return maker  # type: ignore[no-any-return]
    return None


Arguments = tuple[list[Any], dict[str, Any]]
"""Positional and keyword arguments of a call."""


def constructor_arguments(target: Callable[..., Any], init: list[Any]) -> Arguments:
    """What `init` means: `[a, b]`, one dict of keyword arguments, or `[[a, b], {"c": d}]`."""
    match init:
        case [dict() as keywords] if keywords and _fits(target, [], keywords):
            return [], keywords
        case [list() | tuple() as args, dict() as keywords]:
            # A constructor may also take a list and a dict, but parameters that match come first.
            if _fits(target, list(args), keywords):
                return list(args), keywords
    return init, {}


def fitting_arguments(target: Callable[..., Any], borrowed: ReferenceArguments) -> Arguments | None:
    """The reference's constructor arguments; None if it has none, they do not fit, or some could not be serialised.

    They are passed by name where the target has all parameters of the reference's names, in any order.
    """
    if not borrowed.init or leaves(borrowed.init, Unserializable):
        return None
    args, keywords = constructor_arguments(target, borrowed.init)
    named = {**dict(zip(borrowed.init_names, args, strict=False)), **keywords}
    signature = signature_of(target)
    has_all = signature is not None and set(borrowed.init_names) <= set(signature.parameters)
    if has_all and len(named) == len(args) + len(keywords) and _fits(target, [], named):
        return [], named
    return (args, keywords) if _fits(target, args, keywords) else None


def by_position(signature: inspect.Signature | None, named: dict[Any, Any]) -> list[Any] | None:
    """Named arguments in calling order, with defaults in the gaps; None where a call cannot pass them in that order."""
    parameters = _order(signature)
    last = max((index for index, parameter in enumerate(parameters) if parameter.name in named), default=-1)
    leading = parameters[: last + 1]
    if any(parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL) for parameter in leading):
        return None
    if named.keys() - {parameter.name for parameter in leading} or set(required_names(signature)) - named.keys():
        return None
    return [named.get(parameter.name, parameter.default) for parameter in leading]


def keyword_only(signature: inspect.Signature | None, named: dict[Any, Any]) -> list[str]:
    """Those of the named arguments that no value reaches; empty if some name no parameter."""
    parameters = signature.parameters if signature is not None else {}
    if named.keys() - parameters.keys():
        return []
    return [name for name in named if parameters[name].kind is inspect.Parameter.KEYWORD_ONLY]


def _order(signature: inspect.Signature | None) -> list[inspect.Parameter]:
    """The parameters that values reach, in the order in which they are given: keyword-only ones last."""
    every = list(signature.parameters.values()) if signature is not None else []
    by_keyword = [each for each in every if each.kind is each.KEYWORD_ONLY and each.default is each.empty]
    return [each for each in every if each.kind not in (each.KEYWORD_ONLY, each.VAR_KEYWORD)] + by_keyword


def _fits(target: Callable[..., Any], args: list[Any], keywords: dict[Any, Any]) -> bool:
    if not all(isinstance(key, str) for key in keywords):
        return False
    if getattr(target, "__init__", None) is torch.nn.Module.__init__:
        return not args and not keywords  # Its signature accepts anything, and the constructor then refuses it.
    signature = signature_of(target)
    return signature is not None and _binds(signature, args, keywords)


def _fits_call(signature: inspect.Signature, count: int, names: Sequence[str]) -> bool:
    """Whether a call can pass so many values, the last of them by those names."""
    return len(names) <= count and _binds(signature, [None] * (count - len(names)), dict.fromkeys(names))


def _binds(signature: inspect.Signature, args: list[Any], keywords: dict[Any, Any]) -> bool:
    try:
        signature.bind(*args, **keywords)
    except TypeError:
        return False
    return True
