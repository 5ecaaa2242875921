"""Log lines of the API and the workers: plain text, or JSON objects with the job that each line is about.

Lines only contain text of this project: never a source, a kernel's output, or a message derived from them.
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
from domain.settings import JSON, settings

MESSAGE_CHARS = 4000
EXCEPTION_CHARS = 6000
"""Maximum characters of a traceback; with the message it stays below one line of `stack/child.py`."""

READABLE = "[%(asctime)s] [%(process)d] [%(levelname)s] %(message)s"

Field = str | int
_subject: ContextVar[dict[str, Field] | None] = ContextVar("subject", default=None)
process_fields: dict[str, Field] = {}
"""Fields of every line of this process, such as the worker's name."""


@contextmanager
def about(**fields: Field) -> Iterator[None]:
    """Add these fields to every line logged inside the block, also of threads that run in a copy of the context."""
    token = _subject.set({**(_subject.get() or {}), **fields})
    try:
        yield
    finally:
        _subject.reset(token)


def note(**fields: Field) -> None:
    """Add these fields to further lines inside the innermost `about`; no effect outside of one."""
    subject = _subject.get()
    if subject is not None:
        subject.update(fields)


class JsonLines(logging.Formatter):
    """JSON lines: `at` (UTC), `level`, `logger`, `pid`, `message`; if known `worker`, `request_id`, `job_id`,
    `attempt`, `stage`, `task_id` (of the attempt's message; Celery's own lines only have this one); and `exception`, a
    traceback."""

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
    """Plain log entries without control characters, with continuation lines indented."""

    def __init__(self) -> None:
        super().__init__(READABLE)

    def format(self, record: logging.LogRecord) -> str:
        return one_entry(super().format(record))


def _of_celery(record: logging.LogRecord) -> dict[str, Field]:
    """The id of the task that a line of Celery is about, from the record's `data`."""
    data = getattr(record, "data", None)
    return {"task_id": str(data["id"])} if isinstance(data, dict) and "id" in data else {}


def formatter(form: str) -> logging.Formatter:
    return JsonLines() if form == JSON else ReadableLines()


def format_handlers(logger: logging.Logger, **_: Any) -> None:
    """Celery signal handler: set the configured log format on the handlers that Celery gave this logger."""
    for handler in logger.handlers:
        handler.setFormatter(formatter(settings().log_format))


def set_up(level: str, form: str) -> None:
    """Log to stderr, in processes whose server does not configure logging itself."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(form))
    logging.basicConfig(level=level, handlers=[handler], force=True)
