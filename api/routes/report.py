"""GET /job/<id>/report: everything about a job as a page for a person."""

from __future__ import annotations

from typing import Any

from apiflask import APIBlueprint
from flask import Response, request
from marshmallow import validate

from api.auth.authentication import keys_wanted
from api.pages import job_report, words
from api.pages.rendering import page
from api.pages.stages import MEANS, steps
from api.routes.jobs import known
from api.schemas.fields import Text, WireSchema
from tasks.jobs.job_view import JobView

blueprint = APIBlueprint("report", __name__, tag="Jobs")

REFRESH_S = 3
ON, OFF = "on", "off"
_HTML: dict[str, Any] = {"content": {"text/html": {"schema": {"type": "string"}}}}
_ANSWERS: dict[Any, Any] = {
    200: {"description": "The report of a job that has ended, whatever became of it", **_HTML},
    202: {"description": "The job goes on; the page asks for itself again", **_HTML},
    404: "No such job",
}


class ReportQuerySchema(WireSchema):
    """How the page behaves while the job goes on."""

    refresh = Text(
        validate=validate.OneOf((ON, OFF)),
        load_default=ON,
        metadata={"description": "Whether the page of a job that has not ended asks for itself again."},
    )


@blueprint.get("/job/<job_id>/report")
@blueprint.input(ReportQuerySchema, location="query")
@blueprint.doc(summary="A job's report, for a person", responses=_ANSWERS)
def report(job_id: str, query_data: dict[str, Any]) -> Response:
    """One self-contained page: verdict, times and their spread, where outputs differ, what happened when and where.

    It needs no script and no other host. Errors are pages too for who asks for `text/html`.
    """
    view = known(job_id)
    if view.state.terminal:
        return page("report.html", **job_report.shown(view, request.host_url.rstrip("/"), keyed=keys_wanted()))
    every_s = REFRESH_S if query_data["refresh"] == ON else None
    response = page("unfinished.html", 202, view=view, steps=steps(view.timeline), every_s=every_s, **_going_on(view))
    response.headers["Retry-After"] = str(REFRESH_S)
    if every_s is not None:
        # In a header: the rules for accessible pages have it that a page itself does not do that.
        response.headers["Refresh"] = str(every_s)
    return response


def _going_on(view: JobView) -> dict[str, str]:
    means = MEANS[view.stage.value]
    if view.queue_position is not None:
        ahead = words.counted(view.queue_position, "job")
        return {"means": "queued", "told": f"It is queued: {ahead} before it."}
    stopping = " It was asked to stop." if view.cancel_requested else ""
    return {
        "means": words.name(view.stage.value),
        "told": f"It is being worked on by {view.worker}: {means}.{stopping}",
    }
