"""Lines as JSON: what each is about, bounded, and one line whatever is in it."""

from __future__ import annotations

import contextvars
import json
import logging
import sys
from threading import Thread
from typing import Any

import pytest

from tasks.node.log_config import EXCEPTION_CHARS, MESSAGE_CHARS, JsonLines, about, note

log = logging.getLogger("tests.log_lines")


class Kept(logging.Handler):
    """Keeps lines as they would be written."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    @property
    def last(self) -> dict[str, Any]:
        line: dict[str, Any] = json.loads(self.lines[-1])
        return line


@pytest.fixture
def kept() -> Kept:
    handler = Kept()
    log.handlers = [handler]
    log.setLevel(logging.DEBUG)
    log.propagate = False
    return handler


def test_a_line_says_which_job_it_is_about(kept: Kept) -> None:
    log.info("before")
    assert not {"job_id", "attempt", "stage"} & kept.last.keys()
    note(stage="nowhere")
    with about(job_id="j", attempt=1):
        note(stage="build")
        with about(request_id="r"):
            log.warning("inside %d", 1)
        assert kept.last["message"] == "inside 1" and kept.last["level"] == "WARNING"
        assert {name: kept.last[name] for name in ("job_id", "attempt", "stage", "request_id")} == {
            **{"job_id": "j", "attempt": 1, "stage": "build", "request_id": "r"}
        }
        thread = Thread(target=contextvars.copy_context().run, args=(log.info, "from a thread"))
        note(stage="time")
        thread.start()
        thread.join()
        assert (kept.last["job_id"], kept.last["stage"]) == ("j", "time"), "also what is noted later"
    log.info("after")
    assert "job_id" not in kept.last


def test_what_celery_writes_about_a_message_names_it(kept: Kept) -> None:
    from celery.app.trace import info, logger

    logger.addHandler(kept)
    before, logger.level = logger.level, logging.INFO
    try:
        info("Task %(name)s[%(id)s] succeeded", {"name": "evaluate", "id": "j.1"})
    finally:
        logger.removeHandler(kept)
        logger.setLevel(before)
    assert kept.last["task_id"] == "j.1" and "job_id" not in kept.last
    log.info("no message")
    assert "task_id" not in kept.last


def test_whatever_is_in_it_it_is_one_bounded_line(kept: Kept) -> None:
    try:
        raise ValueError("a\nb" * EXCEPTION_CHARS)
    except ValueError:
        # Not through the logger: what pytest catches of it goes into its report, which takes no half a character.
        said = ("two\nlines \ud800 %s", ("x" * 2 * MESSAGE_CHARS,))
        kept.handle(log.makeRecord(log.name, logging.ERROR, __file__, 1, *said, exc_info=sys.exc_info()))
    assert len(kept.lines) == 1 and "\n" not in kept.lines[0]
    assert len(kept.lines[0]) < 16_384
    assert kept.last["message"].startswith("two\nlines")
    assert kept.last["exception"].endswith("b")
