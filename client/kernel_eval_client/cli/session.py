"""What every command has at hand: the client, where to write, and how."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from kernel_eval_client.cli.exits import exit_of, fault_of
from kernel_eval_client.cli.terminal import Bar, Terminal
from kernel_eval_client.client import Client
from kernel_eval_client.errors import KernelEvalError


@dataclass(frozen=True)
class Session:
    """`out` gets what was asked for, `progress` (standard error) the rest. With `as_json` `out` gets JSON only."""

    client: Client
    out: Terminal
    progress: Terminal
    as_json: bool
    verbose: bool

    def write(self, value: Any) -> None:
        """One JSON value on one line."""
        self.out.json(value)

    def bar(self, total: int) -> AbstractContextManager[Bar]:
        """A progress bar, but where lines of JSON go to a terminal: one would be in the other's way."""
        return self.progress.bar(total, shown=not (self.as_json and self.out.is_terminal))

    def told(self, error: KernelEvalError) -> dict[str, Any]:
        """An error for programs."""
        facts: dict[str, Any] = {"fault": fault_of(error), "exit": int(exit_of(error)), "message": str(error)}
        for name in ("status", "job_id", "retry_after"):
            if (value := getattr(error, name, None)) is not None:
                facts[name] = value
        return {**facts, "problem": dict(error.problem)}
