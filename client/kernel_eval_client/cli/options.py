"""The options of a submission from the command line."""

from __future__ import annotations

import argparse
from typing import Any

from kernel_eval_client.cli.source import read_cases
from kernel_eval_client.errors import CallerError
from kernel_eval_client.submission import Options


def options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options on the command line, by their names in Options. Raises CallerError for options that conflict."""
    named: dict[str, Any] = {name: getattr(arguments, name, None) for name in Options.__annotations__}
    if metrics := getattr(arguments, "metric", None):
        if named["device_metrics"] == "full":
            raise CallerError("--metric adds to the basic metrics: leave out `--device-metrics full`, or --metric")
        named["device_metrics"] = metrics
    if named["cases"] is not None:
        named["cases"] = read_cases(named["cases"])
    return {name: value for name, value in named.items() if value is not None}
