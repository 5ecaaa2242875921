"""The request of a job that has ended, for as long as the job: its owner reads the sources and has them judged again.

A completed job keeps it compressed among its artifacts, under a name that no artifact has. The record gives up the
request itself at the same moment, so that the compressed one takes no more room than was admitted. A job that ended
without a result keeps the record's own. The API's KEEP_SOURCES turns both off, by the record.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from redis import Redis

from domain.request import Request
from domain.settings import settings
from tasks.jobs.job_queue import read_request

NAME = "request"
MAX_KEPT = 256 << 10
"""Maximum size of a kept request, in bytes as stored: a source of the maximum size fits when it is compressed,
tensors in a contract may not."""
MAX_UNPACKED = 16 << 20
"""Maximum size of a kept request before compression, in bytes: each view of a page unpacks it. Zeros of 60 MiB would
take 60 KiB as stored."""


def kept_request(request: Request) -> dict[str, bytes]:
    """The parts of its request that a completed job keeps, by name; empty if it is too large."""
    text = json.dumps(request.to_wire(), separators=(",", ":"))
    if len(text) > MAX_UNPACKED:
        return {}
    packed = zlib.compress(text.encode())
    return {NAME: packed} if len(packed) <= MAX_KEPT else {}


def read_kept_request(redis: Redis, job_id: str) -> Request | None:
    """The request of a job; None if it kept none, or one of another version."""
    if not settings().keep_sources:
        return None
    packed: Any = redis.hget(f"job:{job_id}:artifacts", NAME)
    stored: Any = redis.get(f"job:{job_id}:request") if packed is None else None
    try:
        if packed is not None:
            stored = zlib.decompress(packed)
        return None if stored is None else read_request(stored)
    except (ValueError, zlib.error):
        return None
