"""Pages about several jobs: two of them side by side, and all attempts under one name, and a suite."""

from __future__ import annotations

from typing import Any

from apiflask import APIBlueprint
from flask import Response
from marshmallow import validate

from api.auth.authentication import caller_id
from api.http.context import app_context
from api.http.problems import Kind, Problem
from api.pages.rendering import ON, page
from api.pages.several_jobs import history, side_by_side, suite
from api.pages.stored_record import page_of
from api.routes.jobs import find_job
from api.schemas.fields import QuerySchema, Text
from api.schemas.page import HTML, RefreshQuerySchema
from tasks.jobs.job_search import JobFilter, search
from tasks.jobs.job_view import JobView
from tasks.jobs.kept_request import read_kept_request

blueprint = APIBlueprint("pages", __name__, tag="Jobs")

_PAGE: dict[Any, Any] = {200: {"description": "The page", **HTML}, 404: "No such job"}


class SideBySideQuerySchema(QuerySchema):
    first = Text(required=True, validate=validate.Length(1, 100), metadata={"description": "Id of a job."})
    second = Text(required=True, validate=validate.Length(1, 100), metadata={"description": "Id of another job."})


@blueprint.get("/side-by-side")
@blueprint.input(SideBySideQuerySchema, location="query")
@blueprint.doc(summary="Two jobs side by side, for a person", responses=_PAGE)
def two_jobs(query_data: dict[str, Any]) -> Response:
    """A page of two jobs: verdicts, times, intervals, roofline, counters, and the difference of their sources."""
    first, second = (find_job(query_data[name].strip()) for name in (side_by_side.FIRST, side_by_side.SECOND))
    now, sources = app_context().records.now(), (_source(first.job_id), _source(second.job_id))

    def rendered(*views: JobView) -> Response:
        return page("side_by_side.html", **side_by_side.template_values(views, sources, now))

    return page_of(rendered, first, second)


class AttemptsQuerySchema(RefreshQuerySchema):
    name = Text(required=True, validate=validate.Length(1, 200), metadata={"description": "The kernel's whole name."})


@blueprint.get("/kernel")
@blueprint.input(AttemptsQuerySchema, location="query")
@blueprint.doc(summary="The attempts under one name, for a person", responses=_PAGE)
def attempts(query_data: dict[str, Any]) -> Response:
    """A page of the newest jobs whose requests have this `name`: verdicts, speed-ups in order, and the best so far."""
    records, name = app_context().records, query_data["name"]
    result = search(records, JobFilter(name=name), limit=history.MAX_ATTEMPTS, key_id=caller_id())
    if not result.views:
        raise Problem(Kind.UNKNOWN_JOB, f"no job is named {name!r}; give jobs a `name`")
    refreshes = query_data["refresh"] == ON
    values = history.template_values(name, result, records.now())
    return page("history.html", reloads=refreshes, **values, refreshes=refreshes)


class SuiteQuerySchema(RefreshQuerySchema):
    name = Text(
        load_default="",
        validate=validate.Length(max=200),
        metadata={"description": "How the names of its jobs begin, such as `level2/`; empty: all of them."},
    )


@blueprint.get("/suite")
@blueprint.input(SuiteQuerySchema, location="query")
@blueprint.doc(summary="The score of a suite, for a person", responses=_PAGE)
def score(query_data: dict[str, Any]) -> Response:
    """A page of the newest job of each name `problem:candidate`, as `kernel-eval suite` names them: the share of
    problems that are right and faster than p, and the best candidate of each problem."""
    records, prefix = app_context().records, query_data["name"]
    newest = records.newest_named(prefix, caller_id(), suite.MAX_NAMES + 1)
    values, refreshes = suite.template_values(prefix, newest, records.now()), query_data["refresh"] == ON
    reloads = refreshes and bool(values["unfinished"])
    return page("suite.html", reloads=reloads, **values, refreshes=refreshes)


def _source(job_id: str) -> str | None:
    """The candidate's source, as far as the service kept the job's request."""
    request_sources = read_kept_request(app_context().redis, job_id)
    return request_sources.kernel.source_code if request_sources else None
