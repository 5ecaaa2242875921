"""Log lines of the API and the workers: readable ones, or JSON objects that say which job each is about.

Only what we write ourselves is in a line. No source, no output of a kernel and no message about one ever is.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from domain.plain_text import one_entry
from domain.settings import JSON

MESSAGE_CHARS = 4000
EXCEPTION_CHARS = 6000
"""With its message a line stays below what `stack/child.py` reads as one."""

READABLE = "[%(asctime)s] [%(process)d] [%(levelname)s] %(message)s"

Field = str | int
_subject: ContextVar[dict[str, Field] | None] = ContextVar("subject", default=None)
process_fields: dict[str, Field] = {}
"""What is in every line of this process: a worker's name."""


@contextmanager
def about(**fields: Field) -> Iterator[None]:
    """Every line that is logged inside has these fields too. A thread has them if it runs in a copy of the context."""
    token = _subject.set({**(_subject.get() or {}), **fields})
    try:
        yield
    finally:
        _subject.reset(token)


def note(**fields: Field) -> None:
    """From now on the lines of the innermost `about` have these fields; nothing outside of one."""
    subject = _subject.get()
    if subject is not None:
        subject.update(fields)


class JsonLines(logging.Formatter):
    """`at` (UTC), `level`, `logger`, `pid`, `message`; then where they are known `worker`, `request_id`, `job_id`,
    `attempt`, `stage`, `task_id` (of the message under which the attempt runs; Celery's own lines have this alone);
    and `exception`, a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage()[:MESSAGE_CHARS],
            **process_fields,
            **_of_celery(record),
            **(_subject.get() or {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)[-EXCEPTION_CHARS:]
        return json.dumps(line).replace("\x7f", "\\u007f")


class ReadableLines(logging.Formatter):
    """One entry of a log for people, without control characters, its further lines indented."""

    def __init__(self) -> None:
        super().__init__(READABLE)

    def format(self, record: logging.LogRecord) -> str:
        return one_entry(super().format(record))


def _of_celery(record: logging.LogRecord) -> dict[str, Field]:
    """The task that Celery writes about: it gives a line's parts along, as `data`."""
    data = getattr(record, "data", None)
    return {"task_id": str(data["id"])} if isinstance(data, dict) and "id" in data else {}


def formatter(form: str) -> logging.Formatter:
    """Of LOG_FORMAT."""
    return JsonLines() if form == JSON else ReadableLines()


def set_up(level: str, form: str) -> None:
    """This process's own lines go to stderr. For processes whose server does not see to that itself."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(form))
    logging.basicConfig(level=level, handlers=[handler], force=True)
