"""Queues the span of a request that submitted jobs, for a worker to export."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from flask import Response, g, request
from redis.exceptions import RedisError

from api.http.context import app_context
from api.http.request_id import BEGAN, KEY
from domain.settings import settings
from tasks.jobs import trace_queue

TRACEPARENT_CHARS = 55
"""Maximum length of a valid traceparent header; the rest is cut."""

log = logging.getLogger(__name__)


def note(job_ids: Iterable[str]) -> None:
    """Notes that the current request has submitted these jobs."""
    if settings().otlp_endpoint is not None:
        g.handed_in = [*job_ids]


def queue_span(response: Response) -> Response:
    """Queues the span after a request that submitted jobs."""
    jobs = g.get("handed_in")
    if jobs:
        post = {
            "path": request.path,
            "status": response.status_code,
            "request_id": request.environ[KEY],
            "began": request.environ[BEGAN],
            "ended": time.time(),
            "traceparent": request.headers.get("traceparent", "")[:TRACEPARENT_CHARS],
        }
        try:
            trace_queue.put(app_context().redis, [{"post": {**post, "job": job_id}} for job_id in jobs])
        except RedisError as error:
            log.info("a request's span could not be queued and will be missing from its trace: %s", error)
    return response
