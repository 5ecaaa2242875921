"""The field `cases`, and contracts with symbols, to which each case gives values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from marshmallow import ValidationError

from api.schemas.contract import MAX_ARGUMENTS
from api.schemas.fields import Anything
from api.schemas.kernel import KernelSchema
from api.schemas.launch import AXES
from domain import expression
from domain.cases.case import ARGUMENTS, MAX_CASES, Case, CaseError, parse_cases, primary
from domain.contract import IOContract
from domain.expression import ExpressionError, Number
from domain.result import CANDIDATE, REFERENCE
from domain.value import MAX_RANK

ALONE, COMPARED = {"kernel": CANDIDATE}, {"ref_kernel": REFERENCE, "custom_kernel": CANDIDATE}
"""The kernels of a body of /evaluate and of /compare, with their roles; the first makes the inputs."""
BOUNDS = ("low", "high", "total")
"""Members of `init` that may be expressions, as sizes are."""
BESIDE_HIDDEN = "cannot be returned beside hidden cases: code and kernels' names may show what they were made for"
Path = tuple[int | str, ...]


class CasesField(Anything):
    """The cases of a request, which `CaseContracts` parses before the schema reads the body."""

    def __init__(self) -> None:
        argument = {"type": "object", "additionalProperties": True}
        super().__init__(
            metadata={
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_CASES,
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "hidden": {"type": "boolean"},
                        "timed": {"type": "boolean"},
                        ARGUMENTS: argument,
                    },
                },
                "description": "Keyword arguments of `get_inputs()`, and values of a contract's symbols, for which the "
                "kernel is judged: `arguments`, or keys beside the other names. A hidden case is only counted; without "
                "`timed` one is only validated.",
            }
        )


class CaseContracts:
    """The contracts of one body for each of its cases. Raises ValidationError for a body with invalid cases.

    Without cases, a contract's own scalars give values to the names in its sizes and bounds.
    """

    def __init__(self, body: dict[str, Any], roles: Mapping[str, str]) -> None:
        self._body = body
        self._roles = roles
        self._cases = [] if body.get("cases") is None else self._parsed(body["cases"])
        for name in ("artifacts", "profile"):
            if body.get(name) and any(case.hidden for case in self._cases):
                raise ValidationError(BESIDE_HIDDEN, name)
        kernels = {name: body[name] for name in roles if self._cases and isinstance(body.get(name), dict)}
        self._symbols = {name: symbols for name, kernel in kernels.items() if (symbols := _symbols(kernel.get("io")))}
        self._check_arguments(kernels.get(next(iter(roles)), {}))

    @property
    def first(self) -> dict[str, Any]:
        """The body with the contracts of the first timed case."""
        if not self._cases:
            kernels = {name: self._body[name] for name in self._roles if isinstance(self._body.get(name), dict)}
            contracts = {name: _with_own_values(each.get("io"), (name, "io")) for name, each in kernels.items()}
            return self._body | {name: kernels[name] | {"io": io} for name, io in contracts.items() if io is not None}
        if not self._symbols:
            return self._body
        case = primary(self._cases)
        contracts = {name: self._contract(name, case, (name, "io")) for name in self._symbols}
        return self._body | {name: self._body[name] | {"io": io} for name, io in contracts.items()}

    def all(self) -> list[dict[str, Any]]:
        """Every case in wire form, with its contracts checked as if it were the only one."""
        return [replace(case, contracts=self._checked(place, case)).to_wire() for place, case in enumerate(self._cases)]

    def _checked(self, place: int, case: Case) -> dict[str, IOContract]:
        contracts = {}
        for name in self._symbols:
            io = self._contract(name, case, ("cases", place, name, "io"))
            try:
                loaded = KernelSchema().load(self._body[name] | {"io": io})
            except ValidationError as error:
                raise ValidationError({"cases": {place: {name: error.messages}}}) from error
            contracts[self._roles[name]] = IOContract.from_wire(loaded["io"])
        return contracts

    def _contract(self, name: str, case: Case, path: Path) -> dict[str, Any]:
        return _with_values(self._body[name]["io"], _numbers(case), path)

    @staticmethod
    def _parsed(wire: Any) -> list[Case]:
        try:
            return parse_cases(wire)
        except CaseError as error:
            raise ValidationError(_at(("cases", *error.path), str(error))) from error

    def _check_arguments(self, owner: dict[str, Any]) -> None:
        """Checks that cases give every symbol a number, and, where a contract makes the inputs, nothing else."""
        symbols = set().union(*self._symbols.values()) if self._symbols else set()
        has_contract = isinstance(owner.get("io"), dict) and bool(owner["io"].get("args"))
        for place, case in enumerate(self._cases):
            wire = self._body["cases"][place]
            path: Path = ("cases", place, *([ARGUMENTS] if ARGUMENTS in wire else []))
            for symbol in sorted(symbols):
                if symbol not in case.arguments:
                    raise ValidationError(_at((*path, symbol), "is missing; a contract names this symbol"))
                if symbol not in _numbers(case):
                    raise ValidationError(_at((*path, symbol), "must be a number; a contract names this symbol"))
            used = symbols | self._launch_names()
            unused = next((key for key in case.arguments if has_contract and key not in used), None)
            if unused is not None:
                message = 'no contract names this symbol: write it in a shape or a value, as in "shape": ["N", 64]'
                raise ValidationError(_at((*path, unused), message))

    def _launch_names(self) -> set[str]:
        names: set[str] = set()

        def note(text: str) -> str:
            names.update(_names(text))
            return text

        for name in self._symbols:
            _each_dimension(self._body[name]["io"].get("launch"), note)
        return names


def _at(path: Path, message: str) -> Any:
    messages: Any = [message]
    for step in reversed(path):
        messages = {step: messages}
    return messages


def _numbers(case: Case) -> dict[str, Number]:
    return {
        name: value
        for name, value in case.arguments.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _is_symbolic(value: Any) -> bool:
    """Whether it is an expression, and no number in a string."""
    return isinstance(value, str) and bool(_names(value))


def _names(text: str) -> set[str]:
    try:
        return expression.names(text)
    except ExpressionError:
        return set()


def _arguments(io: Any) -> list[dict[str, Any]]:
    args = io.get("args") if isinstance(io, dict) else None
    return args if isinstance(args, list) and all(isinstance(argument, dict) for argument in args) else []


def _symbols(io: Any) -> set[str]:
    """The names in the sizes, bounds and values of an unchecked contract."""
    texts = []
    for argument in _arguments(io):
        spec = argument.get("tensor_spec")
        for sizes in (spec.get("shape"), spec.get("strides")) if isinstance(spec, dict) else ():
            texts += sizes if isinstance(sizes, list) else []
        init = spec.get("init") if isinstance(spec, dict) else None
        texts += [init.get(bound) for bound in BOUNDS] if isinstance(init, dict) else []
        if argument.get("type") in ("int", "float"):
            texts.append(argument.get("value"))
    return {name for text in texts if _is_symbolic(text) for name in _names(text)}


def _number(text: str, values: Mapping[str, Number], path: Path) -> Number:
    try:
        return expression.number(text, values)
    except ExpressionError as error:
        raise ValidationError(_at(path, str(error))) from error


def _sized(spec: dict[str, Any], value: Callable[..., Any]) -> dict[str, Any]:
    """The tensor with `value(key, place, size)` for each size, stride and bound, unless the schema will refuse their
    number."""
    sized = [key for key in ("shape", "strides") if isinstance(spec.get(key), list) and len(spec[key]) <= MAX_RANK]
    changed: dict[str, Any] = {key: [value(key, axis, size) for axis, size in enumerate(spec[key])] for key in sized}
    if isinstance(init := spec.get("init"), dict):
        changed["init"] = init | {bound: value("init", bound, init[bound]) for bound in BOUNDS if bound in init}
    return spec | changed


def _with_own_values(io: Any, path: Path) -> Any:
    """The contract with numbers in place of its own scalars' names in sizes and bounds. Raises ValidationError."""
    args = _arguments(io)
    if not 0 < len(args) <= MAX_ARGUMENTS:  # The schema refuses more.
        return io
    given = [(each.get("name"), each.get("value")) for each in args if each.get("type") in ("int", "float")]
    values = {str(name): value for name, value in given if isinstance(value, int | float)}

    def value(place: int, key: str, axis: int | str, size: Any) -> Any:
        if not _is_symbolic(size):
            return size
        at = (*path, "args", place, "tensor_spec", key, axis)
        if unknown := _names(size) - values.keys():
            message = f"'{min(unknown)}' has no value; give it one in `cases`, or by an int argument of that name"
            raise ValidationError(_at(at, message))
        return _number(size, values, at)

    sized = [
        each | {"tensor_spec": _sized(each["tensor_spec"], partial(value, place))}
        if isinstance(each.get("tensor_spec"), dict)
        else each
        for place, each in enumerate(args)
    ]
    return io | {"args": sized}


def _with_values(io: dict[str, Any], values: Mapping[str, Number], path: Path) -> dict[str, Any]:
    """The contract with numbers in place of symbols; a launch keeps the names of arguments. Raises ValidationError."""

    def value(*steps_and_text: Any) -> Any:
        *steps, text = steps_and_text
        return _number(text, values, (*path, *steps)) if _is_symbolic(text) else text

    args = []
    for place, argument in enumerate(_arguments(io)):
        spec, at = argument.get("tensor_spec"), ("args", place)
        if isinstance(spec, dict):
            if spec.get("data") is not None:
                message = "is fixed, and cases change the contract; have the content drawn (`init`)"
                raise ValidationError(_at((*path, *at, "tensor_spec", "data"), message))
            argument = argument | {"tensor_spec": _sized(spec, partial(value, *at, "tensor_spec"))}
        if argument.get("type") in ("int", "float"):
            name = str(argument.get("name"))
            argument = argument | ({"value": value(*at, "value", argument["value"])} if "value" in argument else {})
            if name in values and argument.get("value") != values[name]:
                message = f'is also a symbol of the cases, with another value; write "value": "{name}"'
                raise ValidationError(_at((*path, *at, "value"), message))
        args.append(argument)
    launch = _each_dimension(
        io.get("launch"), lambda text: expression.substituted(text, values) if _names(text) else text
    )
    return io | {"args": args} | ({"launch": launch} if launch is not None else {})


def _each_dimension(launch: Any, change: Callable[[str], Any]) -> Any:
    """The launch with each expression of its grid, block and shared memory changed, in any of their forms."""
    if not isinstance(launch, dict):
        return launch

    def changed(wire: Any) -> Any:
        match wire:
            case str():
                return change(wire)
            case list():
                return [changed(one) for one in wire]
            case dict():
                return {axis: changed(one) if axis in AXES else one for axis, one in wire.items()}
        return wire

    sized = ("grid", "block", "shared_mem")
    return {name: changed(wire) if name in sized else wire for name, wire in launch.items()}
