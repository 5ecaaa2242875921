"""One line of a process: JSON where the process writes that (`tasks/node/log_config.py`), else its text; shown either
way."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from domain.plain_text import one_entry, plain_lines


@dataclass(frozen=True)
class LogLine:
    """What that process said. `fields` has at least `message`."""

    process: str
    fields: dict[str, Any]

    @classmethod
    def read(cls, process: str, text: str) -> LogLine:
        """From what came through its pipe: other programs, and libraries in ours, do not write JSON."""
        try:
            fields = json.loads(text) if text.startswith("{") else None
        except ValueError:
            fields = None
        if not isinstance(fields, dict) or not isinstance(fields.get("message"), str):
            fields = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "message": plain_lines(text)}
        return cls(process, fields)

    @property
    def json(self) -> str:
        """One object, with the process's name; in ASCII, and json leaves no other control character than DEL."""
        return json.dumps({"process": self.process, **self.fields}).replace("\x7f", "\\u007f")

    @property
    def readable(self) -> str:
        """For people: without control characters, and further lines indented, so that none passes for another entry."""
        shown = str(self.fields["message"])
        if "level" in self.fields:
            time = str(self.fields.get("at", ""))[11:19]
            shown = f"{time} {self.fields['level']:<7} {shown}"
        exception = self.fields.get("exception")
        return one_entry(f"{shown}\n{exception}" if exception else shown)
