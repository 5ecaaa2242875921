"""One line of a process: JSON where the process writes that (`tasks/log_lines.py`), else its text; shown either way."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any


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
            fields = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "message": text}
        return cls(process, fields)

    @property
    def json(self) -> str:
        """One object, with the process's name."""
        return json.dumps({"process": self.process, **self.fields})

    @property
    def readable(self) -> str:
        """For people: text that came as text is as it was."""
        if "level" not in self.fields:
            return str(self.fields["message"])
        time = str(self.fields.get("at", ""))[11:19]
        shown = f"{time} {self.fields['level']:<7} {self.fields['message']}"
        return "\n".join(filter(None, (shown, self.fields.get("exception"))))
