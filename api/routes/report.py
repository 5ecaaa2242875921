"""GET /job/<id>/report: everything about a job as a page for a person."""

from __future__ import annotations

from typing import Any

from apiflask import APIBlueprint
from flask import Response, request

from api.auth.authentication import auth_required
from api.pages import job_report, words
from api.pages.rendering import ON, REFRESH_S, page, reloading
from api.pages.stages import MEANS, steps
from api.routes.jobs import find_job
from api.schemas.fields import LenientSchema
from api.schemas.page import HTML, refresh_field
from tasks.jobs.job_view import JobView

blueprint = APIBlueprint("report", __name__, tag="Jobs")

_ANSWERS: dict[Any, Any] = {
    200: {"description": "The report of a job that has ended in any state", **HTML},
    202: {"description": "The job is not finished; the page reloads itself", **HTML},
    404: "No such job",
}


class ReportQuerySchema(LenientSchema):
    """How the page behaves while the job runs."""

    refresh = refresh_field(ON)


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
    return response if every_s is None else reloading(response)


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
