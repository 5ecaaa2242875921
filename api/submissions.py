"""Submitting kernels: POST /evaluate, /compare, /batch, and / as the old name of /compare."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any
from uuid import uuid4

from apiflask import APIBlueprint
from flask import Response, jsonify
from marshmallow import ValidationError
from redis.exceptions import RedisError

from api import answers, examples
from api.access import caller
from api.desk import desk
from api.problems import CONTENT_TYPE, RETRY_AFTER_S, Kind, Problem, invalid_fields
from api.schemas.fields import WireSchema
from api.schemas.job import BatchAnswerSchema, JobSchema, ResultSchema, location
from api.schemas.problem import ProblemSchema
from api.schemas.request import (
    BatchSchema,
    CompareSchema,
    EvaluateSchema,
    LegacyCompareSchema,
    read_batch,
    read_compare,
    read_evaluate,
    read_job,
)
from api.waiting import WaitQuerySchema
from domain.job import State
from domain.request import Request
from domain.settings import settings
from tasks.records import JobView
from tasks.submission import QuotaReached, submit, submit_many

log = logging.getLogger(__name__)

blueprint = APIBlueprint("submissions", __name__, tag="Submissions")


def _problem(description: str) -> dict[str, Any]:
    return {"description": description, "content": {CONTENT_TYPE: {"schema": ProblemSchema}}}


_REFUSED: dict[int, Any] = {
    400: _problem("The request is not valid; every field at fault is named"),
    413: _problem("The body is larger than 64 MiB"),
    415: _problem("The body is no JSON"),
    503: _problem("The queue is full or the broker cannot be reached; try again after `Retry-After`"),
}
_ANSWERS: dict[int, Any] = {
    200: {
        "description": "The verdict: waited for, and there in time",
        "content": {"application/json": {"schema": ResultSchema}},
    },
    **_REFUSED,
    409: _problem("The job was cancelled while you waited"),
    500: _problem("The service failed to judge the kernel (waited for)"),
}
Decorator = Callable[[Callable[..., Response]], Callable[..., Response]]


def _submission(
    path: str, body: type[WireSchema], shown: dict[str, Any], summary: str, *, deprecated: bool = False
) -> Decorator:
    """The route of a view that takes such a body, and what the OpenAPI document says of it."""
    layers = (
        blueprint.doc(summary=summary, responses=_ANSWERS, deprecated=deprecated or None),
        blueprint.output(JobSchema, 202, description="Accepted; `Location` is where to ask for the result"),
        blueprint.input(WaitQuerySchema, location="query"),
        blueprint.input(body, validation=False, examples=shown),
        blueprint.post(path),
    )
    return lambda view: reduce(lambda inner, layer: layer(inner), layers, view)


@_submission("/evaluate", EvaluateSchema, examples.EVALUATE, "Judge one kernel")
def evaluate(json_data: dict[str, Any], query_data: dict[str, Any]) -> Response:
    """Builds, runs and times one kernel. Answers 202 at once, or with `wait` the verdict."""
    return _submit(read_evaluate(json_data), query_data)


@_submission("/compare", CompareSchema, examples.COMPARE, "Judge a kernel against a reference")
def compare(json_data: dict[str, Any], query_data: dict[str, Any]) -> Response:
    """Builds both kernels, checks the custom one against the reference, times both. Answers as /evaluate does."""
    return _submit(read_compare(json_data), query_data)


@_submission("/", LegacyCompareSchema, examples.LEGACY, "The old name of /compare", deprecated=True)
def legacy(json_data: dict[str, Any], query_data: dict[str, Any]) -> Response:
    """Takes what /compare takes, and the first version's `ref_code` and `custom_code`; so does /compare."""
    return _submit(read_compare(json_data), query_data)


@blueprint.post("/batch")
@blueprint.input(BatchSchema, validation=False, examples=examples.BATCH)
@blueprint.output(BatchAnswerSchema, 202, description="Answered body by body, in order")
@blueprint.doc(summary="Submit up to 1000 bodies at once", responses=_REFUSED)
def batch(json_data: dict[str, Any]) -> Response:
    """Each body is accepted or refused on its own. Follow the accepted ones with `GET /jobs?batch_id=…`."""
    read: list[Request | Problem] = []
    for body in read_batch(json_data):
        try:
            read.append(read_job(body))
        except ValidationError as error:
            read.append(invalid_fields(error))
    valid = [entry for entry in read if isinstance(entry, Request)]
    batch_id = str(uuid4())
    job_ids = _submit_many(valid, batch_id)
    entries = [
        _entry(index, next(job_ids) if isinstance(entry, Request) else entry) for index, entry in enumerate(read)
    ]
    accepted = sum("job_id" in entry for entry in entries)
    answer = jsonify(
        {
            "batch_id": batch_id if accepted else None,
            "accepted": accepted,
            "refused": len(entries) - accepted,
            "jobs": entries,
        }
    )
    answer.status_code = 202
    if accepted < len(valid):
        answer.headers["Retry-After"] = str(RETRY_AFTER_S)
    return answer


def _submit_many(requests: list[Request], batch_id: str) -> Iterator[str | Problem]:
    """The id of each, or the problem that kept it out; raises Problem when none of them got in."""
    if not requests:
        return iter(())
    _check_room(len(requests))
    job_ids = submit_many(desk().records, requests, batch_id=batch_id, key=caller())
    if not any(job_ids):
        raise _quota_reached()
    return iter([job_id or _quota_reached() for job_id in job_ids])


def _entry(index: int, answer: str | Problem) -> dict[str, Any]:
    if isinstance(answer, Problem):
        return {"index": index, "problem": answer.body(f"/batch#/jobs/{index}")}
    return {"index": index, "job_id": answer, "location": location(answer), "state": State.QUEUED.value}


def _submit(request: Request, query: dict[str, Any]) -> Response:
    _check_room(1)
    try:
        job_id = submit(desk().records, request, key=caller())
    except QuotaReached as error:
        raise _quota_reached() from error
    try:
        view = desk().records.get(job_id)
    except RedisError as error:
        # It is recorded, so it is accepted: an error would make the client submit it again.
        log.warning("job %s is answered without its record: %s", job_id, error)
        view = JobView.accepted(job_id, request, time.time())
    if view is None:
        raise RuntimeError(
            f"job {job_id} was recorded and is gone: is Redis evicting keys? Set maxmemory-policy noeviction"
        )
    return answers.submitted(view, query)


def _quota_reached() -> Problem:
    key = caller()
    most = key.max_jobs if key else 0
    return Problem(
        Kind.TOO_MANY_JOBS,
        f"this key may have {most} jobs that are not done and has them; nothing was recorded, try again when one is",
        {"Retry-After": str(RETRY_AFTER_S)},
    )


def _check_room(jobs: int) -> None:
    queued, most = desk().records.queue_length(), settings().max_queue
    if queued + jobs > most:
        raise Problem(
            Kind.QUEUE_FULL,
            f"{queued} jobs are queued and the queue takes {most}; nothing was recorded, try again later",
            {"Retry-After": str(RETRY_AFTER_S)},
        )
