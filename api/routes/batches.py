"""GET /batch/<id>: the jobs of a batch."""

from __future__ import annotations

from typing import Any

from apiflask import APIBlueprint
from flask import Response, jsonify

from api.auth.authentication import caller_id
from api.http import responses
from api.http.context import app_context
from api.http.long_poll import WaitQuerySchema
from api.http.problems import Kind, Problem, prefers_page
from api.pages.rendering import ON, page
from api.pages.several_jobs import batch
from api.schemas.batch import BatchViewSchema, line, progress
from api.schemas.page import ALSO_A_PAGE, refresh_field
from domain.settings import settings
from tasks.jobs.job_store import JobView

blueprint = APIBlueprint("batches", __name__, tag="Jobs")

_NO_BATCH: dict[Any, Any] = {404: "No such batch", 503: "The broker cannot be reached"}


class BatchQuerySchema(WaitQuerySchema):
    refresh = refresh_field()


@blueprint.get("/batch/<batch_id>")
@blueprint.input(BatchQuerySchema, location="query")
@blueprint.output(BatchViewSchema, description="Its jobs counted, and a line for each")
@blueprint.doc(summary="A batch's jobs", responses=ALSO_A_PAGE | _NO_BATCH)
def read(batch_id: str, query_data: dict[str, Any]) -> Response:
    """Reports each job of a batch, as a page for a browser.

    With `wait`, the response is delayed until all have ended or the wait expires.
    """
    views, headers = responses.wait_for_jobs(find_batch(batch_id), query_data)
    if prefers_page():
        values = batch.template_values(batch_id, views, app_context().records.now())
        refreshes = query_data["refresh"] == ON
        # Nothing changes any more once all have ended.
        reloads = refreshes and bool(values["unfinished"])
        response = page("batch.html", reloads=reloads, **values, refreshes=refreshes)
    else:
        response = jsonify({"batch_id": batch_id, **progress(views), "jobs": [line(view) for view in views]})
    response.headers.update({"Vary": "Accept", **headers})
    return response


def find_batch(batch_id: str) -> list[JobView]:
    """The batch's stored jobs, in the order of its bodies; raises Problem where this client has none."""
    views = app_context().records.list(batch_id=batch_id, key_id=caller_id(), limit=settings().max_batch)
    if not views:
        raise unknown(batch_id)
    return views[::-1]


def unknown(batch_id: str) -> Problem:
    """The problem for an unknown batch. Another key's batch gets the same response."""
    return Problem(
        Kind.UNKNOWN_BATCH,
        f"no batch {batch_id[:100]!r} is known: it was never submitted, none of its bodies was accepted, or the "
        "time for which its jobs are kept is over",
        batch_id=batch_id[:100],
    )
