"""The span of a request that hands in jobs: what is known of it when it is answered, for a worker to send."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from flask import Response, g, request
from redis.exceptions import RedisError

from api.http.context import desk
from api.http.request_id import BEGAN, KEY
from domain.settings import settings
from tasks.jobs import trace_queue

TRACEPARENT_CHARS = 55
"""It has no more; what is longer is none."""

log = logging.getLogger(__name__)


def note(job_ids: Iterable[str]) -> None:
    """The current request has handed in these jobs."""
    if settings().otlp_endpoint is not None:
        g.handed_in = [*job_ids]


def tell(response: Response) -> Response:
    """After a request."""
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
            trace_queue.put(desk().redis, [{"post": {**post, "job": job_id}} for job_id in jobs])
        except RedisError as error:
            log.info("a request will be missing in its traces: %s", error)
    return response
