"""POST /job/<id>/confirm: judges the sources of a completed comparison again, to see whether its result stands."""

from __future__ import annotations

import secrets
from typing import Any

from apiflask import APIBlueprint
from flask import Response

from api.http import responses
from api.http.context import app_context
from api.http.long_poll import WaitQuerySchema
from api.http.problems import Kind, Problem
from api.pages.stored_record import read_or
from api.routes.idempotency import IdempotencySchema
from api.routes.jobs import find_job
from api.routes.sources import OF_A_KEPT_REQUEST, find_request
from api.routes.submissions import record
from api.schemas.job import JobSchema
from domain.request import Request
from domain.speed.confirmation import FirstResult
from tasks.fleet.heartbeat import workers
from tasks.jobs.job_view import JobView

blueprint = APIBlueprint("confirm", __name__, tag="Submissions")

_ANSWERS: dict[Any, Any] = {
    **OF_A_KEPT_REQUEST,
    409: "The job has no verdict, or no speed-up to confirm; or the new job was cancelled while you waited",
}


@blueprint.post("/job/<job_id>/confirm")
@blueprint.input(IdempotencySchema, location="headers")
@blueprint.input(WaitQuerySchema, location="query")
@blueprint.output(JobSchema, 202, description="Accepted: the new job; `Location` is where to ask for its result")
@blueprint.doc(summary="Judge a comparison again", responses=_ANSWERS)
def confirm(job_id: str, query_data: dict[str, Any], headers_data: dict[str, Any]) -> Response:
    """Judges the same sources in a new job: other secret inputs, other processes, budget `precise`, another card.

    The body is empty. The new job's result says in `confirmation` whether the first verdict and speed-up stand.
    """
    request, first = _confirmation(find_job(job_id))
    view = record(request, headers_data, worker=_worker_of_another_card(first))
    return responses.submitted(view, query_data, [])


def _confirmation(view: JobView) -> tuple[Request, FirstResult]:
    """The request of the new job, and the result that it is to confirm; raises Problem where there is none."""
    if view.result is None:
        detail = "wait for it with ?wait=SECONDS" if not view.state.terminal else "submit it again"
        raise Problem(
            Kind.JOB_NOT_COMPLETED, f"the job is {view.state}, without a verdict; {detail}", job_id=view.job_id
        )
    first = read_or(lambda: FirstResult.of(view.job_id, view.result or {}), None)
    if first is None:
        why = view.result.get("speedup_unavailable_reason") or "it was no comparison, or has no speed-up"
        detail = f"only a comparison that passed with a speed-up can be confirmed: {why}"
        raise Problem(Kind.NOTHING_TO_CONFIRM, detail, job_id=view.job_id)
    return find_request(view).confirming(first), first


def _worker_of_another_card(first: FirstResult) -> str | None:
    """A worker with another card of the same model, of the same node if there is one; None for any worker."""
    if first.gpu_index is None:
        return None
    others = [
        worker
        for worker in workers(app_context().redis)
        if worker.gpu_model == first.gpu_model
        and worker.gpu_index is not None
        and worker.quarantined is None
        and (worker.host, worker.gpu_index) != (first.host, first.gpu_index)
    ]
    nearest = [worker for worker in others if worker.host == first.host] or others
    return secrets.choice(nearest).name if nearest else None
