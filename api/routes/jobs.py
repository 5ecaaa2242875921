"""Jobs after their submission: GET /job/<id>, GET /jobs, DELETE /job/<id>, POST /jobs/cancel."""

from __future__ import annotations

from typing import Any

from apiflask import APIBlueprint
from flask import Response, jsonify
from marshmallow import validate

from api.auth.authentication import caller, caller_id
from api.http import responses
from api.http.context import app_context
from api.http.long_poll import WaitQuerySchema
from api.http.problems import Kind, Problem
from api.openapi import request_examples
from api.routes import batches
from api.schemas.fields import QuerySchema, RealNumber, Text, WholeNumber, one_of
from api.schemas.job import CancelResponseSchema, JobListSchema, JobSchema, summary
from api.schemas.request import CancelSchema, read_cancel
from domain.job import State
from tasks.jobs.job_store import JobView

blueprint = APIBlueprint("jobs", __name__, tag="Jobs")

MAX_PAGE = 1000
_NO_JOB = {404: "No such job", 503: "The broker cannot be reached"}
_CANCELLING: dict[Any, Any] = {
    202: {
        "description": "It is running and will stop shortly",
        "content": {"application/json": {"schema": JobSchema}},
    },
    **_NO_JOB,
}


class ListQuerySchema(QuerySchema):
    """Selects the jobs to list."""

    state = Text(validate=one_of(State))
    batch_id = Text(validate=validate.Length(max=100))
    limit = WholeNumber(1, MAX_PAGE, load_default=100)
    cursor = RealNumber(metadata={"type": "string", "description": "The `next_cursor` of the page before."})


@blueprint.get("/job/<job_id>")
@blueprint.input(WaitQuerySchema, location="query")
@blueprint.output(JobSchema, description="The job; `result` once it is completed")
@blueprint.doc(summary="A job's state and result", responses=_NO_JOB)
def read(job_id: str, query_data: dict[str, Any]) -> Response:
    """200 for every known job, however it ended. With `wait`, delayed until it is terminal or the time is over."""
    view, headers = responses.wait_for_job(find_job(job_id), query_data)
    response = responses.job(view)
    response.headers.update(headers)
    return response


@blueprint.delete("/job/<job_id>")
@blueprint.input(WaitQuerySchema, location="query")
@blueprint.output(JobSchema, description="The job, terminal: cancelled, or as it ended before")
@blueprint.doc(summary="Cancel a job", responses=_CANCELLING)
def cancel(job_id: str, query_data: dict[str, Any]) -> Response:
    """Cancels a queued job at once; stops a running one, which takes a moment (202; 200 after a wait).

    A terminal job is returned unchanged.
    """
    if caller() is not None:
        # A job's owner never changes, so checking first leaves no race.
        find_job(job_id)
    view, headers = responses.wait_for_job(_authorised(job_id, app_context().records.cancel(job_id)), query_data)
    response = responses.job(view, 200 if view.state.terminal else 202)
    response.headers.update(headers)
    return response


@blueprint.post("/jobs/cancel")
@blueprint.input(CancelSchema, validation=False, examples=request_examples.CANCEL)
@blueprint.output(CancelResponseSchema, description="What is known of each job now; some may still be running")
@blueprint.doc(summary="Cancel a batch, or many jobs", responses={404: "No such batch"})
def cancel_many(json_data: dict[str, Any]) -> Response:
    """Cancels queued jobs at once, asks running ones to stop, and leaves terminal ones. `DELETE` for many jobs."""
    batch_id, job_ids = read_cancel(json_data)
    if batch_id is not None:
        job_ids = [view.job_id for view in batches.find_batch(batch_id)]
    after = app_context().records.cancel_many(job_ids, caller_id())
    views = [view for view, _ in after]
    existing_ids = {view.job_id for view in views}
    cancelled = sum(requested and view.state is State.CANCELLED for view, requested in after)
    cancelling = sum(not view.state.terminal for view in views)
    return jsonify(
        {
            "cancelled": cancelled,
            "cancelling": cancelling,
            "already_finished": len(views) - cancelled - cancelling,
            "jobs": [
                {"job_id": view.job_id, "state": view.state.value, "cancel_requested": view.cancel_requested}
                for view in views
            ],
            "not_found": [job_id for job_id in job_ids if job_id not in existing_ids],
        }
    )


@blueprint.get("/jobs")
@blueprint.input(ListQuerySchema, location="query")
@blueprint.output(JobListSchema)
@blueprint.doc(summary="Jobs, newest first", responses={404: "No such batch"})
def listing(query_data: dict[str, Any]) -> Response:
    """A page of the stored jobs, without their results; filtered by state or batch if requested.

    With API keys, only the key's jobs.
    """
    state, batch_id, limit = query_data.get("state"), query_data.get("batch_id"), query_data["limit"]
    state_filter, key_id = State(state) if state else None, caller_id()
    # For a batch or a key, filter by state here: the cursor must continue after the last job that was read.
    index = None if batch_id or key_id else state_filter
    # One more than the page shows whether anything follows.
    views = app_context().records.list(
        state=index,
        batch_id=batch_id,
        key_id=key_id,
        limit=limit + 1,
        before=query_data.get("cursor"),
    )
    if batch_id and not views and "cursor" not in query_data:
        raise batches.unknown(batch_id)
    page = views[:limit]
    summaries = [summary(view) for view in page if state_filter is None or view.state is state_filter]
    return jsonify({"jobs": summaries, "next_cursor": f"{page[-1].submitted_at:.6f}" if len(views) > limit else None})


def find_job(job_id: str) -> JobView:
    """The job, for this client; raises Problem where it has none of that id."""
    return _authorised(job_id, app_context().records.get(job_id))


def _authorised(job_id: str, view: JobView | None) -> JobView:
    """The job, if this client may see it. Another key's job gets the same response as an unknown one."""
    key = caller()
    if view is None or (key is not None and view.key_id != key.key_id):
        raise Problem(
            Kind.UNKNOWN_JOB,
            f"no job {job_id[:100]!r} is known: it was never accepted, it expired, or it belongs to another server",
            job_id=job_id[:100],
        )
    return view
