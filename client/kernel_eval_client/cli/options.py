"""How to judge, as the command line says it."""

from __future__ import annotations

import argparse
from typing import Any

from kernel_eval_client.errors import CallerError
from kernel_eval_client.submission import Options


def options(given: argparse.Namespace) -> dict[str, Any]:
    """What is said, by the names of Options. Raises CallerError for what does not go together."""
    named: dict[str, Any] = {name: getattr(given, name, None) for name in Options.__annotations__}
    if metrics := getattr(given, "metric", None):
        if named["device_metrics"] == "full":
            raise CallerError("--metric adds to the basic metrics: leave out `--device-metrics full`, or --metric")
        named["device_metrics"] = metrics
    return {name: value for name, value in named.items() if value is not None}
