"""What every command has at hand: the client, where to write, and how."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from kernel_eval_client.cli.exits import exit_of, fault_of
from kernel_eval_client.client import Client
from kernel_eval_client.errors import KernelEvalError


@dataclass(frozen=True)
class Session:
    """`out` gets what was asked for, `progress` (standard error) the rest. With `as_json` `out` gets JSON only."""

    client: Client
    out: Console
    progress: Console
    as_json: bool
    verbose: bool

    def write(self, value: Any) -> None:
        """One JSON value on one line."""
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()

    def told(self, error: KernelEvalError) -> dict[str, Any]:
        """An error for programs."""
        facts: dict[str, Any] = {"fault": fault_of(error), "exit": int(exit_of(error)), "message": str(error)}
        for name in ("status", "job_id", "retry_after"):
            if (value := getattr(error, name, None)) is not None:
                facts[name] = value
        return {**facts, "problem": dict(error.problem)}
