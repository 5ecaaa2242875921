"""A parser of arguments whose errors are one line, with what a mistyped option or value was meant to be."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from kernel_eval_client.similar_name import did_you_mean

_CHOICE = re.compile(r"invalid choice: '?(?P<value>[^' ]+)'? \(choose from (?P<choices>.*)\)")
_NUMBER = re.compile(r"invalid (?P<kind>\w+) value: (?P<value>.*)")
_MEANT = {
    **{"pytorch": "torch", "cu": "cuda", "c++": "cuda", "cpp": "cuda", "yes": "allow"},
    **{"run": "evaluate", "judge": "evaluate", "job": "status", "show": "report", "result": "wait", "get": "wait"},
}


class BriefParser(argparse.ArgumentParser):
    """Ends the program with one line and where the options are listed, instead of the whole usage."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.commands: Mapping[str, BriefParser] = {}

    def error(self, message: str) -> NoReturn:
        """Exits with status 2."""
        if match := _CHOICE.search(message):
            message += did_you_mean(_meant(match["value"]), re.findall(r"[\w.-]+", match["choices"]))
        elif match := _NUMBER.search(message):
            kind = "number" if match["kind"] in ("float", "_seconds") else "whole number"
            message = f"{message[: match.start()]}must be a {kind}, not {match['value']}"
        self.exit(2, f"{self.prog}: {message}\n(`{self.prog} --help` lists the options.)\n")

    def refuse(self, unknown: Iterable[str]) -> NoReturn:
        """Exits with status 2 and the options that the unknown arguments look like."""
        options = re.findall(r"--[a-z][\w-]*", self.format_usage())
        near = "".join(did_you_mean(name.partition("=")[0], options) for name in unknown if name.startswith("--"))
        self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")


def _meant(value: str) -> str:
    """The name that others have for a value, or the value."""
    return _MEANT.get(value.lower(), value)
