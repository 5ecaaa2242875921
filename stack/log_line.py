"""One line of a process: JSON if the process writes that (`tasks/node/log_config.py`), else text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from domain.plain_text import one_entry, plain_lines


@dataclass(frozen=True)
class LogLine:
    """A line of a process. `fields` has at least `message`."""

    process: str
    fields: dict[str, Any]

    @classmethod
    def read(cls, process: str, text: str) -> LogLine:
        """Parses a line from a pipe: other programs, and libraries in our processes, do not write JSON."""
        try:
            fields = json.loads(text) if text.startswith("{") else None
        except ValueError:
            fields = None
        if not isinstance(fields, dict) or not isinstance(fields.get("message"), str):
            fields = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "message": plain_lines(text)}
        return cls(process, fields)

    @property
    def json(self) -> str:
        """One JSON object with the process's name, in ASCII and without control characters."""
        return json.dumps({"process": self.process, **self.fields}).replace("\x7f", "\\u007f")

    @property
    def readable(self) -> str:
        """For people: no control characters; further lines are indented, so that none looks like a new entry."""
        text = str(self.fields["message"])
        if "level" in self.fields:
            time = str(self.fields.get("at", ""))[11:19]
            text = f"{time} {self.fields['level']:<7} {text}"
        exception = self.fields.get("exception")
        return one_entry(f"{text}\n{exception}" if exception else text)
