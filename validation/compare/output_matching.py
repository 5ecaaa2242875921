"""Pairs each output of a kernel with an output of the reference: by name where both have names, else by position."""

from __future__ import annotations

from domain.fault import KernelFault
from domain.result import Status
from sandbox.protocol.output_structure import OutputStructure

MAX_NAMES = 5
"""Maximum number of names that a message lists for each kind of mistake."""


def match_outputs(expected: OutputStructure | None, actual: OutputStructure | None) -> list[int]:
    """Returns the indexes of the kernel's outputs in the order of the reference's: [0, 1, ...] where all match by
    position.

    Mappings at the same place are matched by their keys, in whichever order they were filled. Dataclasses match each
    other and mappings where the names are the same. A tuple has no names. Without structures the result is the
    identity.

    Raises KernelFault (WRONG_RESULT) where a mapping lacks a key of the reference's or has an extra one.
    """
    if expected is None or actual is None:
        return list(range(actual.tensors)) if actual is not None else []
    return _order(expected, actual, [])


def _order(expected: OutputStructure, actual: OutputStructure, under: list[str]) -> list[int]:
    if expected.names and actual.names:
        if set(expected.names) == set(actual.names):
            return _by_name(expected, actual, under)
        if expected.keyed and actual.keyed:
            raise _other_keys(expected, actual, under)
    elif not (expected.names or actual.names) and len(expected.members) == len(actual.members) > 0:
        pairs = list(zip(expected.members, actual.members, strict=True))
        orders = [_order(*pair, under) for pair in pairs]
        if all(target.tensors == member.tensors for target, member in pairs):
            return [
                first + number for first, order in zip(_first_indexes(actual), orders, strict=True) for number in order
            ]
    return list(range(actual.tensors))


def _by_name(expected: OutputStructure, actual: OutputStructure, under: list[str]) -> list[int]:
    indexes: list[int] = []
    positions = {name: position for position, name in enumerate(actual.names)}
    firsts = _first_indexes(actual)
    for name, expected_member in zip(expected.names, expected.members, strict=True):
        position = positions[name]
        actual_member = actual.members[position]
        order = _order(expected_member, actual_member, [*under, name])
        if expected_member.tensors != actual_member.tensors:
            counts = f"{actual_member.tensors} of the kernel's outputs and {expected_member.tensors} of the reference's"
            raise KernelFault(
                Status.WRONG_RESULT, f"{counts} are{_under([*under, name])}: return as many tensors there"
            )
        indexes += [firsts[position] + number for number in order]
    return indexes


def _first_indexes(form: OutputStructure) -> list[int]:
    """The index of each member's first tensor."""
    firsts, end = [], 0
    for member in form.members:
        firsts.append(end)
        end += member.tensors
    return firsts


def _other_keys(expected: OutputStructure, actual: OutputStructure, under: list[str]) -> KernelFault:
    expected_names, actual_names = set(expected.names), set(actual.names)
    missing = [name for name in expected.names if name not in actual_names]
    unknown = [name for name in actual.names if name not in expected_names]
    problems = [f"{kind} {_join_names(names)}" for kind, names in (("lacks", missing), ("has", unknown)) if names]
    more = ", which the reference's dict lacks" if unknown else ""
    return KernelFault(
        Status.WRONG_RESULT,
        f"the dict that the kernel returns{_under(under)} {' and '.join(problems)}{more}: outputs in dicts are "
        f"compared by their keys, and the reference's are {_join_names(expected.names)}",
    )


def _under(names: list[str]) -> str:
    return f" under {''.join(f'[{name}]' for name in names)}" if names else ""


def _join_names(names: list[str] | tuple[str, ...]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
