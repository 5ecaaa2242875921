"""GET /job/<id>/report: everything about a job as a page for a person."""

from __future__ import annotations

from typing import Any

from apiflask import APIBlueprint
from flask import Response, request
from marshmallow import validate

from api.auth.authentication import auth_required
from api.pages import job_report, words
from api.pages.rendering import page
from api.pages.stages import MEANS, steps
from api.routes.jobs import find_job
from api.schemas.fields import LenientSchema, Text
from tasks.jobs.job_view import JobView

blueprint = APIBlueprint("report", __name__, tag="Jobs")

REFRESH_S = 3
ON, OFF = "on", "off"
_HTML: dict[str, Any] = {"content": {"text/html": {"schema": {"type": "string"}}}}
_ANSWERS: dict[Any, Any] = {
    200: {"description": "The report of a job that has ended in any state", **_HTML},
    202: {"description": "The job is not finished; the page reloads itself", **_HTML},
    404: "No such job",
}


class ReportQuerySchema(LenientSchema):
    """How the page behaves while the job runs."""

    refresh = Text(
        validate=validate.OneOf((ON, OFF)),
        load_default=ON,
        metadata={"description": "Whether the page of a job that has not ended reloads itself."},
    )


@blueprint.get("/job/<job_id>/report")
@blueprint.input(ReportQuerySchema, location="query")
@blueprint.doc(summary="A job's report, for a person", responses=_ANSWERS)
def report(job_id: str, query_data: dict[str, Any]) -> Response:
    """A self-contained page: verdict, times and their spread, where outputs differ, and a timeline.

    It needs no script and no other host. Errors are pages too for a client that accepts `text/html`.
    """
    view = find_job(job_id)
    if view.state.terminal:
        return page(
            "report.html", **job_report.template_values(view, request.host_url.rstrip("/"), keyed=auth_required())
        )
    every_s = REFRESH_S if query_data["refresh"] == ON else None
    response = page("unfinished.html", 202, view=view, steps=steps(view.timeline), every_s=every_s, **_going_on(view))
    response.headers["Retry-After"] = str(REFRESH_S)
    if every_s is not None:
        # A header, because the accessibility rules forbid a page to refresh itself.
        response.headers["Refresh"] = str(every_s)
    return response


def _going_on(view: JobView) -> dict[str, str]:
    means = MEANS[view.stage.value]
    if view.queue_position is not None:
        ahead = words.counted(view.queue_position, "job")
        return {"means": "queued", "sentence": f"It is queued: {ahead} before it."}
    stopping = " It was asked to stop." if view.cancel_requested else ""
    return {
        "means": words.name(view.stage.value),
        "sentence": f"{view.worker} is processing it: {means}.{stopping}",
    }
