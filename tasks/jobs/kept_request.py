"""The request of a passed comparison, compressed, for as long as its result: a confirmation judges it again.

It lies among the job's artifacts, under a name that no artifact has. The record gives up the request itself at the
same moment, so that the compressed one takes no more room than was admitted.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from redis import Redis

from domain.request import Request
from domain.result import Report
from tasks.jobs.job_queue import read_request

NAME = "request"
MAX_PACKED = 256 << 10
"""Maximum size of a compressed request, in bytes: a source of the maximum size fits, tensors in a contract may not."""


def kept_request(request: Request, report: Report) -> dict[str, bytes]:
    """What a completed job keeps of its request, by name; empty without a speed-up, or if it is too large."""
    if report.speedup is None:
        return {}
    packed = zlib.compress(json.dumps(request.to_wire(), separators=(",", ":")).encode())
    return {NAME: packed} if len(packed) <= MAX_PACKED else {}


def read_kept_request(redis: Redis, job_id: str) -> Request | None:
    """The request that a completed job kept; None if it kept none, or one of another version."""
    packed: Any = redis.hget(f"job:{job_id}:artifacts", NAME)
    if packed is None:
        return None
    try:
        return read_request(zlib.decompress(packed))
    except ValueError:
        return None
