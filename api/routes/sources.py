"""GET /job/<id>/source and POST /job/<id>/again: the kernels of a job for its owner, and the same request again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from apiflask import APIBlueprint, Schema
from flask import Response, jsonify
from marshmallow import fields

from api.http import responses
from api.http.context import app_context
from api.http.long_poll import WaitQuerySchema
from api.http.problems import Kind, Problem
from api.routes.idempotency import IdempotencySchema
from api.routes.jobs import find_job
from api.routes.submissions import ANSWERS, record
from api.schemas.job import JobSchema, name_field
from domain.kernel import Kernel
from domain.request import Request
from domain.settings import settings
from tasks.jobs.job_view import JobView
from tasks.jobs.kept_request import MAX_KEPT, MAX_UNPACKED, read_kept_request

blueprint = APIBlueprint("sources", __name__, tag="Jobs")

_GONE = {404: "No such job", 410: "The service did not keep the request"}
OF_A_KEPT_REQUEST: dict[Any, Any] = ANSWERS | _GONE


class SourceSchema(Schema):
    """The kernels of a job, in the form in which requests have them."""

    job_id = fields.String(required=True)
    name = name_field()
    kernel = fields.Dict(required=True, metadata={"description": "`source_code`, `kernel_type`, `io`, `metadata`."})
    reference = fields.Dict(
        required=True, allow_none=True, metadata={"description": "The same of /compare's `ref_kernel`, else null."}
    )


@blueprint.get("/job/<job_id>/source")
@blueprint.output(SourceSchema)
@blueprint.doc(summary="A job's sources", responses=_GONE)
def source(job_id: str) -> Response:
    """The kernels that the job's request had. The service keeps them for as long as the job, for its owner."""
    view = find_job(job_id)
    request = find_request(view)
    reference = request.reference
    return jsonify(
        {
            "job_id": view.job_id,
            "name": view.name,
            "kernel": _sent(request.kernel),
            "reference": _sent(reference) if reference else None,
        }
    )


@blueprint.post("/job/<job_id>/again")
@blueprint.input(IdempotencySchema, location="headers")
@blueprint.input(WaitQuerySchema, location="query")
@blueprint.output(JobSchema, 202, description="Accepted: the new job; `Location` is where to ask for its result")
@blueprint.doc(summary="Judge the same request again", tags=["Submissions"], responses=OF_A_KEPT_REQUEST)
def again(job_id: str, query_data: dict[str, Any], headers_data: dict[str, Any]) -> Response:
    """Submits the job's request as a new job, on other inputs. The body is empty. Responds as /evaluate does."""
    first = find_job(job_id)
    request = replace(find_request(first), name=first.name, reuse=False)
    return responses.submitted(record(request, headers_data), query_data, [])


def find_request(view: JobView) -> Request:
    """The request of a job; raises Problem where the service has it no longer."""
    request = read_kept_request(app_context().redis, view.job_id)
    if request is None:
        reason = (
            f"it was too large (over {MAX_KEPT >> 10} KiB as stored, or {MAX_UNPACKED >> 20} MiB as sent), or an "
            "earlier version of the service judged it"
            if settings().keep_sources
            else "the operator keeps none (KEEP_SOURCES)"
        )
        raise Problem(
            Kind.REQUEST_GONE,
            f"the service did not keep the request of this job: {reason}",
            job_id=view.job_id,
        )
    return request


def _sent(kernel: Kernel) -> dict[str, Any]:
    return {
        name: value
        for name, value in kernel.to_wire().items()
        if name in ("source_code", "kernel_type", "io", "metadata") and value is not None
    }
