"""Which of a kernel's outputs belongs to which of the reference's: by name where both have names, else by place."""

from __future__ import annotations

from domain.fault import KernelFault
from domain.result import Status
from sandbox.protocol.output_structure import OutputStructure

MOST_TOLD = 5
"""Names of one kind."""


def answer_order(expected: OutputStructure | None, actual: OutputStructure | None) -> list[int]:
    """The numbers of the actual outputs, in the order of those that they are compared with; all by place: [0, 1, ...].

    Mappings that stand at the same place are matched by their keys, in whichever order they were filled; so are
    dataclasses, with each other and with mappings, where they have the same names. A tuple has none. No form: none.

    Raises KernelFault (WRONG_RESULT) where a mapping lacks a key of the reference's, or has one of its own.
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
        if all(wanted.tensors == given.tensors for wanted, given in pairs):
            return [first + number for first, order in zip(_firsts(actual), orders, strict=True) for number in order]
    return list(range(actual.tensors))


def _by_name(expected: OutputStructure, actual: OutputStructure, under: list[str]) -> list[int]:
    found: list[int] = []
    places = {name: place for place, name in enumerate(actual.names)}
    firsts = _firsts(actual)
    for name, wanted in zip(expected.names, expected.members, strict=True):
        place = places[name]
        given = actual.members[place]
        order = _order(wanted, given, [*under, name])
        if wanted.tensors != given.tensors:
            told = f"{given.tensors} of the kernel's outputs and {wanted.tensors} of the reference's"
            raise KernelFault(Status.WRONG_RESULT, f"{told} are{_under([*under, name])}: return as many there")
        found += [firsts[place] + number for number in order]
    return found


def _firsts(form: OutputStructure) -> list[int]:
    """The number of each member's first tensor."""
    firsts, end = [], 0
    for member in form.members:
        firsts.append(end)
        end += member.tensors
    return firsts


def _other_keys(expected: OutputStructure, actual: OutputStructure, under: list[str]) -> KernelFault:
    wanted, given = set(expected.names), set(actual.names)
    lacking = [name for name in expected.names if name not in given]
    unknown = [name for name in actual.names if name not in wanted]
    told = [f"{kind} {_listed(names)}" for kind, names in (("lacks", lacking), ("has", unknown)) if names]
    more = ", which the reference's has not" if unknown else ""
    return KernelFault(
        Status.WRONG_RESULT,
        f"the dict that the kernel returns{_under(under)} {' and '.join(told)}{more}: outputs in dicts are compared by "
        f"their keys, and the reference's are {_listed(expected.names)}",
    )


def _under(names: list[str]) -> str:
    return f" under {''.join(f'[{name}]' for name in names)}" if names else ""


def _listed(names: list[str] | tuple[str, ...]) -> str:
    more = f" and {len(names) - MOST_TOLD} more" if len(names) > MOST_TOLD else ""
    return ", ".join(names[:MOST_TOLD]) + more
