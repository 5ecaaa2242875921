"""Accepts kernels: POST /evaluate, /compare, /batch, and / as the old name of /compare."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import reduce
from typing import Any

from apiflask import APIBlueprint
from flask import Response, jsonify
from marshmallow import ValidationError
from redis.exceptions import RedisError

from api.auth.authentication import caller
from api.http import responses
from api.http.context import app_context
from api.http.drain import refuse_when_draining
from api.http.json_body import release
from api.http.long_poll import WaitQuerySchema, parse_wait
from api.http.problems import MOST_ERRORS, RETRY_AFTER_S, Kind, Problem, invalid_fields
from api.openapi import request_examples
from api.routes.idempotency import IdempotencySchema, chosen_id, fingerprint
from api.schemas.batch import BatchResponseSchema, line, progress
from api.schemas.fields import LenientSchema
from api.schemas.job import JobSchema, ResultSchema, location
from api.schemas.request import (
    BatchSchema,
    CompareSchema,
    EvaluateSchema,
    LegacyCompareSchema,
    ignored,
    ignored_around,
    read_batch,
    read_compare,
    read_evaluate,
    read_job,
    read_qualify,
)
from api.schemas.webhook import read_webhook
from domain.job import State
from domain.request import Request
from domain.settings import MIB, settings
from tasks.fleet.heartbeat import workers
from tasks.jobs.admission import Limits, NewJob, Refusal
from tasks.jobs.job_store import JobView
from tasks.jobs.submit import NotAccepted, submit, submit_many
from tasks.jobs.webhook_outbox import Webhook

BATCH_ERRORS = 1000
"""Maximum errors listed for all bodies of a batch together; each rejected body gets at least one."""

SUGGESTED_BODIES = 100
"""Bodies of a batch whose ignored names are reported together with the most similar field."""

log = logging.getLogger(__name__)

blueprint = APIBlueprint("submissions", __name__, tag="Submissions")


_REFUSED: dict[int, Any] = {
    422: "The `Idempotency-Key` was used for another request, or no worker ever had that `gpu`",
    503: "The queue or the records are full, too many large bodies come at once, no worker has the `gpu` now, "
    "the broker cannot be reached, or the service is being stopped; try again after `Retry-After`",
}
ANSWERS: dict[int, Any] = {
    200: {
        "description": "The verdict, reached within the wait",
        "content": {"application/json": {"schema": ResultSchema}},
    },
    **_REFUSED,
    409: "The job was cancelled while you waited",
    500: "The service failed to judge the kernel while you waited",
}
_BATCH_ANSWERS: dict[int, Any] = {
    200: {
        "description": "All accepted jobs ended within the wait",
        "content": {"application/json": {"schema": BatchResponseSchema}},
    },
    **_REFUSED,
}
Json = dict[str, Any]
Decorator = Callable[[Callable[..., Response]], Callable[..., Response]]


def _submission(
    path: str, body: type[LenientSchema], body_examples: dict[str, Any], summary: str, *, deprecated: bool = False
) -> Decorator:
    """Decorates a view that takes such a body: its route, and its part of the OpenAPI document."""
    layers = (
        blueprint.doc(summary=summary, responses=ANSWERS, deprecated=deprecated or None),
        blueprint.output(JobSchema, 202, description="Accepted; `Location` is where to ask for the result"),
        blueprint.input(WaitQuerySchema, location="query"),
        blueprint.input(IdempotencySchema, location="headers"),
        blueprint.input(body, validation=False, examples=body_examples),
        blueprint.post(path),
    )
    return lambda view: reduce(lambda inner, layer: layer(inner), layers, view)


@_submission("/evaluate", EvaluateSchema, request_examples.EVALUATE, "Judge one kernel")
def evaluate(json_data: Json, query_data: Json, headers_data: Json) -> Response:
    """Builds, runs and times one kernel. Responds 202 at once, or with `wait` the verdict."""
    return _submit(read_evaluate(json_data), json_data, query_data, headers_data)


@_submission("/qualify", CompareSchema, request_examples.COMPARE, "Say whether a kernel is fit to be merged")
def qualify(json_data: Json, query_data: Json, headers_data: Json) -> Response:
    """Compares as /compare does, with `determinism`, `strictness` `robust` and both `baselines` unless the body says
    otherwise. The result's `qualification` says whether the kernel is fit, and why. Responds as /evaluate does.
    """
    return _submit(read_qualify(json_data), json_data, query_data, headers_data)


@_submission("/compare", CompareSchema, request_examples.COMPARE, "Judge a kernel against a reference")
def compare(json_data: Json, query_data: Json, headers_data: Json) -> Response:
    """Builds both kernels, checks the custom one against the reference, times both. Responds as /evaluate does."""
    return _submit(read_compare(json_data), json_data, query_data, headers_data)


@_submission("/", LegacyCompareSchema, request_examples.LEGACY, "The old name of /compare", deprecated=True)
def legacy(json_data: Json, query_data: Json, headers_data: Json) -> Response:
    """Takes what /compare takes, and the first version's `ref_code` and `custom_code`; so does /compare."""
    return _submit(read_compare(json_data), json_data, query_data, headers_data)


@blueprint.post("/batch")
@blueprint.input(WaitQuerySchema, location="query")
@blueprint.input(IdempotencySchema, location="headers")
@blueprint.input(BatchSchema, validation=False, examples=request_examples.BATCH)
@blueprint.output(BatchResponseSchema, 202, description="One entry for each body, in order")
@blueprint.doc(summary="Submit up to 1000 bodies at once", responses=_BATCH_ANSWERS)
def batch(json_data: Json, query_data: Json, headers_data: Json) -> Response:
    """Each body is accepted or refused on its own. Follow the accepted ones with `GET /batch/<batch_id>`.

    With `wait`, delayed until all accepted ones have ended, or the time is over.
    """
    answers_: list[str | Problem] = []
    valid: list[NewJob] = []
    bodies = read_batch(json_data)
    contents: list[Any] = []
    left = BATCH_ERRORS
    for index, body in enumerate(bodies):
        try:
            new = NewJob(chosen_id(headers_data, f"{index}"), read_job(body), index, read_webhook(body))
            _check_priority(new.request)
            valid.append(new)
            answers_.append(new.job_id)
            contents.append(new.request.to_wire())
        except ValidationError as error:
            problem = invalid_fields(error, max(1, min(left, MOST_ERRORS)))
            left -= len(problem.extra_data["errors"])
            answers_.append(problem)
            contents.append(body)
    refuse_when_draining()
    batch_id = chosen_id(headers_data, "batch")
    refused = _submit_many(valid, batch_id, fingerprint(headers_data, contents))
    entries = [
        _entry(index, body, refused.get(answer, answer) if isinstance(answer, str) else answer)
        for index, (body, answer) in enumerate(zip(bodies, answers_, strict=True))
    ]
    accepted_ids = [entry["job_id"] for entry in entries if "job_id" in entry]
    around = ignored_around(json_data)
    summary = {
        "batch_id": batch_id if accepted_ids else None,
        "accepted": len(accepted_ids),
        "refused": len(entries) - len(accepted_ids),
        **({"ignored": around} if around else {}),
    }
    for container in (bodies, valid, contents):
        container.clear()
    release(json_data)
    views, headers = _waited(accepted_ids, query_data)
    summary |= progress(views) if views else {}
    lines = {view.job_id: line(view) for view in views}
    answer = jsonify({**summary, "jobs": [{**entry, **lines.get(entry.get("job_id", ""), {})} for entry in entries]})
    answer.status_code = 200 if summary.get("done") else 202
    answer.headers.update(headers)
    if accepted_ids:
        answer.headers["Location"] = f"/batch/{batch_id}"
    if refused:
        answer.headers["Retry-After"] = str(RETRY_AFTER_S)
    return answer


def _waited(job_ids: list[str], query: Json) -> tuple[list[JobView], dict[str, str]]:
    """The jobs after the requested wait, and headers that describe it; no jobs without a wait."""
    if not job_ids or not parse_wait(query):
        return [], {}
    try:
        return responses.wait_for_jobs(app_context().records.views(job_ids), query)
    except RedisError as error:
        # They are recorded and thus accepted: an error would make the client submit them again.
        log.warning("a batch of %d jobs is answered without their records: %s", len(job_ids), error)
        return [], {}


def _submit_many(jobs: list[NewJob], batch_id: str, bodies: str) -> dict[str, Problem]:
    """The problems of the refused jobs, by their ids; raises Problem when all of them were refused."""
    if not jobs:
        return {}
    records = app_context().records
    admitted = submit_many(records, jobs, batch_id=batch_id, key=caller(), limits=_limits(), bodies=bodies)
    outcomes = zip((new.job_id for new in jobs), admitted, strict=True)
    refused = {job_id: _not_recorded(one) for job_id, one in outcomes if isinstance(one, Refusal)}
    if len(refused) == len(jobs):
        raise next(iter(refused.values()))
    return refused


def _entry(index: int, body: Any, answer: str | Problem) -> dict[str, Any]:
    if isinstance(answer, Problem):
        return {"index": index, "problem": answer.body(f"/batch#/jobs/{index}")}
    ignored_names = ignored(body, suggest=index < SUGGESTED_BODIES)
    entry = {"index": index, "job_id": answer, "location": location(answer), "state": State.QUEUED.value}
    return {**entry, "ignored": ignored_names} if ignored_names else entry


def _check_priority(request: Request) -> None:
    """With API keys, clients compete by priority, so there is a maximum."""
    most = settings().key_max_priority
    if caller() is not None and request.priority > most:
        raise ValidationError({"priority": [f"must be at most {most} here"]}, data={"priority": request.priority})


def _submit(request: Request, body: Json, query: Json, headers: Json) -> Response:
    webhook = read_webhook(body)
    _check_priority(request)
    view = record(request, headers, webhook=webhook)
    unread_names = ignored(body, request.operation)
    del request
    release(body)
    return responses.submitted(view, query, unread_names)


def record(request: Request, headers: Json, *, webhook: Webhook | None = None, worker: str | None = None) -> JobView:
    """The recorded job of a request, under its idempotency key if it has one; raises Problem if it was refused.

    `worker` is the one that should run it.
    """
    refuse_when_draining()
    records, job_id = app_context().records, chosen_id(headers)
    try:
        return submit(records, request, job_id=job_id, key=caller(), limits=_limits(), webhook=webhook, worker=worker)
    except NotAccepted as error:
        raise _not_recorded(error.refusal) from error


def _limits() -> Limits:
    return Limits(settings().max_queue, settings().records_memory)


def _not_recorded(refusal: Refusal) -> Problem:
    """The problem of a job that was not accepted; nothing of it is stored."""
    key, own = caller(), settings()
    later = {"Retry-After": str(RETRY_AFTER_S)}
    match refusal:
        case Refusal.KEY_IS_FULL:
            most = key.max_jobs if key else 0
            detail = f"this key may have {most} jobs that are not done and has them; nothing was recorded, try again"
            return Problem(Kind.TOO_MANY_JOBS, f"{detail} when one is", later)
        case Refusal.QUEUE_IS_FULL:
            detail = f"the queue takes {own.max_queue} jobs and has them; nothing was recorded, try again later"
            return Problem(Kind.QUEUE_FULL, detail, later)
        case Refusal.MEMORY_IS_FULL:
            detail = f"requests and results fill their {own.records_memory // MIB} MiB; nothing was recorded"
            return Problem(Kind.RECORDS_FULL, f"{detail}, try again when jobs have ended and results expired", later)
        case Refusal.KEY_MEMORY_IS_FULL:
            share = _limits().share // MIB
            detail = (
                f"requests and results of this key's jobs fill the {share} MiB that one key may have of the records"
            )
            return Problem(
                Kind.KEY_RECORDS_FULL,
                f"{detail}; nothing was recorded, try again when jobs have ended and results expired",
                later,
            )
        case Refusal.NO_SUCH_GPU:
            available = ", ".join(
                sorted({worker.gpu_model for worker in workers(app_context().redis) if worker.gpu_model})
            )
            reason = f"no worker has that model; available: {available or 'none'}. Or leave `gpu` out"
            return Problem(
                Kind.NO_SUCH_GPU, f"gpu: {reason}", errors=[{"path": ["gpu"], "pointer": "/gpu", "message": reason}]
            )
        case Refusal.GPU_IS_AWAY:
            detail = "no living worker has the `gpu` that the request names, though one had; nothing was recorded"
            return Problem(Kind.GPU_AWAY, f"{detail}, try again later, or without `gpu`", later)
        case Refusal.OTHER_REQUEST:
            detail = "this Idempotency-Key was used for another request; send that again, or choose a new key"
            return Problem(Kind.IDEMPOTENCY_KEY_REUSED, detail)
