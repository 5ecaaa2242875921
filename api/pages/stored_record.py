"""Reads a stored record that another version of the service may have written, with other members."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from jinja2 import UndefinedError

from tasks.jobs.job_view import JobView

Read = TypeVar("Read")
WRITTEN_BY_ANOTHER = (
    "Another version of the service wrote this record, and this version cannot read all of it; `GET /job/<id>` has it "
    "as it was written."
)
AGAIN = "Submit it again, for a record of this version."
_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, UndefinedError)
_log = logging.getLogger(__name__)


def page_of(render: Callable[..., Read], *views: JobView) -> Read:
    """Renders the jobs; without their results, where these cannot be read."""
    return read_or(lambda: render(*views), None) or render(*(replace(view, result=None) for view in views))


def read_or(read: Callable[[], Read], default: Read) -> Read:
    """The result of `read`; `default`, with a line in the log, where the record lacks a member."""
    try:
        return read()
    except _UNREADABLE:
        _log.exception("a stored record cannot be read: another version of the service may have written it")
        return default
