"""The state that every command uses: the client, the two output streams and the output format."""

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
    """`out` gets the command's result, `progress` (standard error) the rest. With `as_json`, `out` gets only JSON."""

    client: Client
    out: Terminal
    progress: Terminal
    as_json: bool
    verbose: bool

    def write(self, value: Any) -> None:
        """Writes one JSON value on one line to `out`."""
        self.out.json(value)

    def bar(self, total: int) -> AbstractContextManager[Bar]:
        """A progress bar; hidden while lines of JSON go to a terminal, which it would interrupt."""
        return self.progress.bar(total, visible=not (self.as_json and self.out.is_terminal))

    def error_object(self, error: KernelEvalError) -> dict[str, Any]:
        """An error as a JSON object: fault, exit status, message, and the service's problem details."""
        facts: dict[str, Any] = {"fault": fault_of(error), "exit": int(exit_of(error)), "message": str(error)}
        for name in ("status", "job_id", "retry_after"):
            if (value := getattr(error, name, None)) is not None:
                facts[name] = value
        return {**facts, "problem": dict(error.problem)}
