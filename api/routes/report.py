"""GET /job/<id>/report: everything about a job as a page for a person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from apiflask import APIBlueprint
from flask import Response, request

from api.auth.authentication import auth_required
from api.http.context import app_context
from api.pages import job_report, words
from api.pages.rendering import ON, REFRESH_S, page
from api.pages.stages import MEANS, steps
from api.pages.stored_record import page_of
from api.routes.jobs import find_job
from api.schemas.fields import LenientSchema
from api.schemas.page import HTML, refresh_field
from domain.job import State
from domain.kernel import KernelType
from tasks.jobs.job_view import JobView
from tasks.jobs.kept_request import read_kept_request

blueprint = APIBlueprint("report", __name__, tag="Jobs")

_ANSWERS: dict[Any, Any] = {
    200: {"description": "The report of a job that has ended in any state", **HTML},
    202: {"description": "The job is not finished; the page reloads itself", **HTML},
    404: "No such job",
}


@dataclass(frozen=True)
class Source:
    """The source of a side, and a name for its file."""

    side: str
    text: str
    file: str


class ReportQuerySchema(LenientSchema):
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
        return page_of(_ended, view)
    reloads = query_data["refresh"] == ON
    values = {"steps": steps(view.timeline), "every_s": REFRESH_S if reloads else None, **_going_on(view)}
    response = page("unfinished.html", 202, reloads=reloads, view=view, **values)
    response.headers["Retry-After"] = str(REFRESH_S)
    return response


def _ended(view: JobView) -> Response:
    values = job_report.template_values(view, request.host_url.rstrip("/"), keyed=auth_required())
    return page("report.html", **values, sources=_sources(view))


def _sources(view: JobView) -> list[Source]:
    """The sources of both sides, as far as the service kept the job's request."""
    request_sources = read_kept_request(app_context().redis, view.job_id)
    sides = (("kernel", request_sources.kernel), ("reference", request_sources.reference)) if request_sources else ()
    return [
        Source(side, kernel.source_code, f"{side}.{'cu' if kernel.kernel_type is KernelType.CUDA else 'py'}")
        for side, kernel in sides
        if kernel is not None
    ]


def _going_on(view: JobView) -> dict[str, str]:
    means = MEANS[view.stage.value]
    if view.queue_position is not None:
        ahead = words.counted(view.queue_position, "job")
        return {"means": "queued", "sentence": f"It is queued: {ahead} before it."}
    if view.state is State.QUEUED:
        return {"means": "queued", "sentence": "It pauses before its last attempt, as every worker has failed it."}
    stopping = " It was asked to stop." if view.cancel_requested else ""
    return {
        "means": words.name(view.stage.value),
        "sentence": f"{view.worker} is processing it: {means}.{stopping}",
    }
