"""GET /job/<id>/artifacts: the code of a job's kernels as text, the profiler's reports, and why others are missing."""

from __future__ import annotations

from typing import Any

from apiflask import APIBlueprint, Schema
from flask import Response, jsonify
from marshmallow import fields

from api.http.context import app_context
from api.http.problems import Kind, Problem
from api.routes.jobs import find_job
from api.schemas.fields import one_of
from domain.listing import PROFILE, Form
from domain.result import CANDIDATE, REFERENCE
from tasks.jobs.artifact_store import Entry, content, entries
from tasks.jobs.job_view import JobView

blueprint = APIBlueprint("artifacts", __name__, tag="Jobs")

TEXT_TYPE, BINARY_TYPE = "text/plain; charset=utf-8", "application/octet-stream"
_NO_JOB = {404: "No such job", 503: "The broker cannot be reached"}
_CONTENT: dict[Any, Any] = {
    200: {
        "description": "The text; or a report of Nsight Compute, as a file to save",
        "content": {
            "text/plain": {"schema": {"type": "string"}},
            BINARY_TYPE: {"schema": {"type": "string", "format": "binary"}},
        },
    },
    404: "No such job, or it has no such artifact",
}


class ArtifactSchema(Schema):
    """A stored text or profiler's report of a job, or why it is unavailable."""

    side = fields.String(required=True, validate=one_of((CANDIDATE, REFERENCE)))
    name = fields.String(required=True, allow_none=True, metadata={"description": "null: unavailable."})
    format = fields.String(
        required=True,
        validate=one_of((*Form, PROFILE)),
        metadata={"description": f"`{PROFILE}` is a binary report for Nsight Compute's own window."},
    )
    kernel = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "The kernel or extension. null: it concerns none in particular."},
    )
    variant = fields.String(allow_none=True, metadata={"description": "For a kernel that was compiled several times."})
    bytes = fields.Integer()
    truncated = fields.Boolean(metadata={"description": "Whether it was cut at its maximum length."})
    path = fields.String(metadata={"description": "Its path in the API."})
    unavailable = fields.String(metadata={"description": "Why it is unavailable, and what to do."})


class ArtifactListSchema(Schema):
    """A job's stored artifacts, and those that are unavailable."""

    job_id = fields.String(required=True)
    artifacts = fields.List(fields.Nested(ArtifactSchema), required=True)


@blueprint.get("/job/<job_id>/artifacts")
@blueprint.output(ArtifactListSchema, description="One entry for each artifact, and for each that cannot be had")
@blueprint.doc(summary="A job's artifacts", responses=_NO_JOB)
def listing(job_id: str) -> Response:
    """Lists the artifacts that the request asked for: the `path` of each, or why it is `unavailable`.

    A job with device metrics may have the profiler's report too (`ncu-rep`). The list is empty for a job that requested
    no artifacts, and for one that has not ended or has no result.
    """
    view = find_job(job_id)
    listed = [{"side": entry.side, **entry.data, **_path(view, entry)} for entry in entries(view.result)]
    return jsonify({"job_id": view.job_id, "artifacts": listed})


@blueprint.get("/job/<job_id>/artifacts/<side>/<name>")
@blueprint.doc(summary="One artifact of a job", responses=_CONTENT)
def read(job_id: str, side: str, name: str) -> Response:
    """Returns the text as UTF-8, or a profiler's report as a file to save.

    The content comes from the submission's own processes: it proves nothing, and is never sent as HTML.
    """
    view = find_job(job_id)
    available = entries(view.result)
    entry = next((candidate for candidate in available if (candidate.side, candidate.name) == (side, name)), None)
    if entry is None:
        raise Problem(Kind.UNKNOWN_ARTIFACT, _why_none(view, available), job_id=view.job_id)
    content_bytes = content(app_context().redis, view.job_id, side, name)
    if content_bytes is None:
        raise Problem(Kind.UNKNOWN_ARTIFACT, "it expired: submit the job again", job_id=view.job_id)
    response = Response(content_bytes, content_type=TEXT_TYPE if entry.is_text else BINARY_TYPE)
    if not entry.is_text:
        response.headers.set("Content-Disposition", "attachment", filename=f"{view.job_id}-{side}-{name}")
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response


def _path(view: JobView, entry: Entry) -> dict[str, str]:
    return {"path": f"/job/{view.job_id}/artifacts/{entry.side}/{entry.name}"} if entry.name is not None else {}


def _why_none(view: JobView, available: list[Entry]) -> str:
    if not view.state.terminal:
        return "the job has not ended, and its artifacts are kept when it does; wait for it with ?wait=SECONDS"
    if view.result is None:
        return f"the job is {view.state}, so that it has none; submit it again"
    names = [f"{entry.side}/{entry.name}" for entry in available if entry.name is not None]
    reasons = [
        f"{entry.side} {entry.data['format']}: {entry.data['unavailable']}" for entry in available if entry.name is None
    ]
    if not available:
        return 'the request asked for none: submit it again with "artifacts", such as ["ptx", "sass"]'
    return f"the job has: {', '.join(names) or 'none'}" + (f". Not to be had: {'; '.join(reasons)}" if reasons else "")
