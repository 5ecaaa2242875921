"""Cases of a job: named arguments, such as sizes, for which one kernel is judged.

A case gives keyword arguments to a source's `get_inputs()`, and values to the symbols of contracts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from domain.contract import IOContract
from domain.wire import Wire

MAX_CASES = 32
MAX_ARGUMENTS = 32
MAX_CASE_CHARS = 4096
"""Maximum size of a case's arguments as JSON, in characters."""
MAX_NAME_CHARS = 100
NAME, HIDDEN, TIMED, ARGUMENTS = "name", "hidden", "timed", "arguments"
OWN_KEYS = (NAME, HIDDEN, TIMED)
"""Keys of a case that are no arguments."""


class CaseSource(StrEnum):
    """The origin of a job's cases: the request, or a function of the source that makes the inputs."""

    REQUEST = "request"
    GET_CASES = "get_cases"
    GET_INPUTS = "get_inputs"


class CaseError(ValueError):
    """The list of cases is malformed; `path` leads to the value at fault, from the list's index on."""

    def __init__(self, message: str, *path: int | str) -> None:
        super().__init__(message)
        self.path = path


@dataclass(frozen=True)
class Case(Wire):
    """One case of a job.

    - `arguments`: JSON-ready; of a case from `get_cases()` only for display.
    - `timed`: whether its time is measured; a hidden case's never is.
    - `hidden`: its arguments and its own result stay out of the response, which counts it.
    - `index`: its place among the source's own cases; None if the request brings it.
    - `source`: its origin.
    - `contracts`: the contracts with symbols by role, with this case's values in their place.
    """

    name: str
    arguments: dict[str, Any]
    hidden: bool = False
    timed: bool = True
    index: int | None = None
    source: CaseSource = CaseSource.REQUEST
    contracts: dict[str, IOContract] = field(default_factory=dict)

    @property
    def selector(self) -> dict[str, Any]:
        """The value of `Kernel.case`: the arguments, or the place in the source's own list."""
        return {ARGUMENTS: self.arguments} if self.index is None else {"index": self.index}

    @property
    def label(self) -> str:
        return "a hidden case" if self.hidden else f"case {self.name!r}"


def parse_cases(wire: Any) -> list[Case]:
    """Parses a list of cases; raises CaseError.

    A case is `{"name", "hidden", "timed", "arguments": {...}}`, or has its arguments beside the other keys.
    """
    if not isinstance(wire, list) or not 1 <= len(wire) <= MAX_CASES:
        raise CaseError(f"must be a list of 1 to {MAX_CASES} cases")
    cases = [_case(place, one) for place, one in enumerate(wire)]
    if not any(case.timed for case in cases):
        raise CaseError("has no case to time: hidden ones are never timed; leave at least one visible and `timed`")
    names: dict[str, int] = {}
    for place, case in enumerate(cases):
        if names.setdefault(case.name, place) != place:
            raise CaseError(f"has the name of case {names[case.name]}; give each a `name` of its own", place, NAME)
    return cases


def keyword_arguments(wire: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a case that a source's `get_cases()` made; their values may be any Python objects."""
    own = {key: value for key, value in wire.items() if key not in OWN_KEYS}
    return dict(own[ARGUMENTS]) if ARGUMENTS in own else own


def sets_as_cases(count: int) -> list[dict[str, Any]]:
    """The wire form of `count` sets that a source's `get_inputs()` yields, which have no arguments."""
    return [{NAME: f"set {index}", ARGUMENTS: {}} for index in range(count)]


def described_case(wire: Mapping[str, Any]) -> dict[str, Any]:
    """A case that a source's `get_cases()` made as JSON: values of other types are their `repr`."""
    arguments = {str(key): _readable(value) for key, value in keyword_arguments(wire).items()}
    return {key: wire[key] for key in OWN_KEYS if key in wire} | {ARGUMENTS: arguments}


def _readable(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return repr(value)[:MAX_NAME_CHARS]


def primary(cases: Sequence[Case]) -> Case:
    """The first timed case: the kernel is built for it, and tools and further checks use it."""
    return next(case for case in cases if case.timed)


def _case(place: int, wire: Any) -> Case:
    if not isinstance(wire, dict):
        raise CaseError("must be a JSON object", place)
    name, hidden, timed = wire.get(NAME), wire.get(HIDDEN, False), wire.get(TIMED, True)
    others = {key: value for key, value in wire.items() if key not in OWN_KEYS}
    arguments, path = (others.pop(ARGUMENTS), (place, ARGUMENTS)) if ARGUMENTS in others else (others, (place,))
    if arguments is not others and others:
        raise CaseError(f"is not a field of a case with `{ARGUMENTS}`; remove it", place, next(iter(others)))
    for key, value in ((HIDDEN, hidden), (TIMED, timed)):
        if not isinstance(value, bool):
            raise CaseError("must be true or false", place, key)
    if name is not None and not (isinstance(name, str) and 1 <= len(name.strip()) <= MAX_NAME_CHARS):
        raise CaseError(f"must be a text of 1 to {MAX_NAME_CHARS} characters", place, NAME)
    if not isinstance(arguments, dict) or len(arguments) > MAX_ARGUMENTS:
        raise CaseError(f"must be an object of at most {MAX_ARGUMENTS} arguments by name", *path)
    for key in arguments:
        if not isinstance(key, str) or not key.isidentifier():
            raise CaseError("is no name of an argument: letters, digits and underscores", *path, str(key)[:60])
    if len(json.dumps(arguments)) > MAX_CASE_CHARS:
        raise CaseError(f"has more than {MAX_CASE_CHARS} characters of JSON", *path)
    name = name.strip() if name is not None else _described(arguments, place)
    return Case(name, arguments, hidden, timed and not hidden)


def _described(arguments: dict[str, Any], place: int) -> str:
    """The name of a case without one: its arguments, if they are short."""
    text = ", ".join(f"{name}={value}" for name, value in arguments.items())
    return text if 0 < len(text) <= MAX_NAME_CHARS else f"case {place}"
