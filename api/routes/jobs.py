"""Jobs after their submission: GET /job/<id>, GET /jobs, DELETE /job/<id>, POST /jobs/cancel."""

from __future__ import annotations

from typing import Any

from apiflask import APIBlueprint
from flask import Response, jsonify, request
from marshmallow import pre_load, validate

from api.auth.authentication import caller, caller_id, key_id_of
from api.http import responses
from api.http.context import app_context
from api.http.long_poll import WaitQuerySchema
from api.http.problems import FieldError, Kind, Problem, invalid, prefers_page
from api.openapi import request_examples
from api.pages.rendering import ON, page
from api.pages.several_jobs import job_list
from api.routes import batches
from api.schemas.fields import QuerySchema, RealNumber, Text, WholeNumber, one_of
from api.schemas.job import CancelResponseSchema, JobListSchema, JobSchema, summary
from api.schemas.page import ALSO_A_PAGE, refresh_field
from api.schemas.request import CancelSchema, read_cancel
from domain.job import State
from domain.kernel import KernelType
from domain.result import Status
from tasks.jobs.job_search import JobFilter, search
from tasks.jobs.job_store import JobView

blueprint = APIBlueprint("jobs", __name__, tag="Jobs")

MAX_PAGE, MAX_FILTER = 1000, 200
PAGE_ROWS = 50
"""Rows of a page in the browser, unless its address names a `limit`."""
FILTERS = ("verdict", "kernel_type", "reference", "name", "text")
_NO_JOB = {404: "No such job", 503: "The broker cannot be reached"}
_CANCELLING: dict[Any, Any] = {
    202: {
        "description": "It is running and will stop shortly",
        "content": {"application/json": {"schema": JobSchema}},
    },
    **_NO_JOB,
}


def _short_text(description: str) -> Text:
    return Text(validate=validate.Length(max=MAX_FILTER), metadata={"description": description})


class ListQuerySchema(QuerySchema):
    state = Text(validate=one_of(State))
    verdict = Text(validate=one_of(Status))
    kernel_type = Text(validate=one_of(KernelType))
    reference = _short_text("The first digits of the reference's digest.")
    name = _short_text("The kernel's whole name.")
    text = _short_text("Occurs in the job's name, ids, digests, device or error, in upper or lower case.")
    key = _short_text("Name or id of an API key, for a client that needs none itself.")
    batch_id = _short_text("The batch of the jobs.")
    limit = WholeNumber(1, MAX_PAGE, load_default=100)
    cursor = RealNumber(metadata={"type": "string", "description": "The `next_cursor` of the page before."})
    refresh = refresh_field()

    @pre_load
    def _without_empty_values(self, data: Any, **_: Any) -> dict[str, Any]:
        """A form sends the fields that nobody filled in too."""
        return {name: value for name, value in data.items() if value != ""}


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
@blueprint.doc(summary="Jobs, newest first", responses=ALSO_A_PAGE | {404: "No such batch"})
def listing(query_data: dict[str, Any]) -> Response:
    """Lists the stored jobs that fulfil all conditions, without their results; as a page for a browser.

    A request searches a bounded number of jobs: a page may hold fewer than `limit`, and none at all, while
    `next_cursor` leads on. With API keys, only the key's jobs.
    """
    shows_page = prefers_page()
    before, batch_id, key = query_data.get("cursor"), query_data.get("batch_id"), query_data.get("key")
    if key and caller() is not None:
        raise invalid([FieldError(("key",), "an API key sees its own jobs alone: leave it out")])
    state = query_data.get("state")
    filtered_by = JobFilter(state and State(state), **{name: query_data.get(name) for name in FILTERS})
    result = search(
        app_context().records,
        filtered_by,
        limit=PAGE_ROWS if shows_page and "limit" not in request.args else query_data["limit"],
        batch_id=batch_id,
        key_id=caller_id() or (key and key_id_of(key)),
        before=before,
    )
    if batch_id and not result.searched and before is None:
        raise batches.unknown(batch_id)
    if shows_page:
        query = {name: value for name, value in request.args.items() if name in query_data and value}
        values = job_list.template_values(result, query, app_context().records.now())
        key_name = getattr(caller(), "name", None)
        response = page("jobs.html", reloads=query_data["refresh"] == ON, **values, key_name=key_name)
    else:
        cursor = None if result.cursor is None else f"{result.cursor:.6f}"
        response = jsonify({"jobs": [summary(view) for view in result.views], "next_cursor": cursor})
    response.headers["Vary"] = "Accept"
    return response


def find_job(job_id: str) -> JobView:
    """The job, for this client; raises Problem where it has none of that id."""
    return _authorised(job_id, app_context().records.get(job_id))


def _authorised(job_id: str, view: JobView | None) -> JobView:
    """The job, if this client may see it. Another key's job gets the same response as an unknown one."""
    key = caller()
    if view is None or (key is not None and view.key_id != key.key_id):
        raise Problem(
            Kind.UNKNOWN_JOB,
            f"no job {job_id[:100]!r} is known: it was never accepted, expired, or belongs to another key or server",
            job_id=job_id[:100],
        )
    return view
