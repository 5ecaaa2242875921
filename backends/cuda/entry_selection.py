"""Chooses which of a CUDA source's `__global__` functions to launch."""

from __future__ import annotations

import re

from backends.cuda.source_scan import GlobalFunction


class UnknownKernel(Exception):
    """No function of the source, or more than one, matches the requested name; the text lists them."""


def choose(functions: list[GlobalFunction], requested: str | None, name_expressions: list[str]) -> str | None:
    """The name to pass to NVRTC: the `requested` function, else the first that needs no template arguments.

    None when `requested` is not among the functions (a macro may define it). Raises UnknownKernel where no choice is
    possible.
    """
    if requested:
        return _named(functions, requested, name_expressions)
    if name_expressions:
        return _named(functions, name_expressions[0], [])
    complete = [function.name for function in functions if not function.template]
    if complete:
        return complete[0]
    return _by_default(functions) if functions else None


def _named(functions: list[GlobalFunction], requested: str, name_expressions: list[str]) -> str | None:
    base, bracket, tail = _compact(requested).partition("<")
    arguments = bracket + tail
    matches = [f for f in functions if _is_called(_compact(f.name), base) or _compact(f.name) == _compact(requested)]
    exact = [f for f in matches if _compact(f.name) == base + arguments]
    plain = [f for f in exact or matches if "<" not in f.name]
    if len({f.name for f in plain}) > 1:
        raise UnknownKernel(f"'{requested}' could be {' or '.join(f.name for f in plain)}: write it out in full")
    if arguments:
        return plain[0].name + "<" + requested.partition("<")[2] if plain else (requested if matches else None)
    if plain and not plain[0].template:
        return plain[0].name
    return _instantiation(matches, name_expressions)


def _instantiation(matches: list[GlobalFunction], name_expressions: list[str]) -> str | None:
    """A template's instantiation that the request or the source itself names."""
    if not matches:
        return None
    for expression in name_expressions:
        if _is_called(_compact(matches[0].name), _compact(expression).partition("<")[0]):
            return _named(matches, expression, [])
    for function in matches:
        if not function.template:
            return function.name
    return _by_default(matches)


def _by_default(templates: list[GlobalFunction]) -> str:
    """The first function whose template arguments all have defaults."""
    for function in templates:
        if not function.example:
            return f"{function.name}<>"
    name, example = templates[0].name, templates[0].example
    raise UnknownKernel(
        f"'{name}' is a template: name an instantiation, such as metadata.kernel_name = \"{name}<{example}>\""
    )


def _is_called(name: str, requested: str) -> bool:
    name = name.partition("<")[0]
    return name == requested or name.endswith("::" + requested)


def _compact(name: str) -> str:
    return re.sub(r"\s+", "", name).removeprefix("::")
