"""GET /: an overview of the service, as a page for a browser and as JSON for other clients."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from apiflask import APIBlueprint, Schema
from flask import Response, jsonify
from marshmallow import fields

from api.auth.authentication import auth_required, caller, caller_id
from api.http.context import app_context
from api.http.problems import prefers_page
from api.openapi import documentation
from api.pages import overview
from api.pages.rendering import ON, page
from api.schemas.job import location, summary
from api.schemas.page import ALSO_A_PAGE, RefreshQuerySchema
from domain.job import State
from tasks.fleet.heartbeat import workers
from tasks.jobs.job_store import JobView
from tasks.jobs.leaderboard import Board, boards

blueprint = APIBlueprint("dashboard", __name__, tag="Service")

RECENT = 20
RANKED = 1000
"""Newest jobs whose candidates are ranked."""

MAX_BOARDS = 6


class DashboardSchema(Schema):
    """An overview of the service. With API keys, jobs and leaderboards are the key's own."""

    name = fields.String(required=True)
    version = fields.String(required=True)
    jobs_by_state = fields.Dict(required=True)
    finished_last_5_minutes = fields.Integer(required=True)
    workers = fields.List(fields.Dict(), required=True)
    recent_jobs = fields.List(fields.Dict(), required=True)
    leaderboards = fields.List(fields.Dict(), required=True)
    links = fields.Dict(required=True)


@blueprint.get("/")
@blueprint.input(RefreshQuerySchema, location="query")
@blueprint.output(
    DashboardSchema, description="An overview as JSON, or as a page for a client that accepts `text/html`"
)
@blueprint.doc(summary="An overview of the service", responses=ALSO_A_PAGE)
def dashboard(query_data: dict[str, Any]) -> Response:
    """Queue, workers, recent jobs, and the fastest candidates of each reference. With API keys, only the key's jobs."""
    key, key_id = caller(), caller_id()
    redis, records = app_context().redis, app_context().records
    counters, alive = records.counters(), workers(redis)
    recent = records.list(key_id=key_id, limit=RECENT)
    leading = boards(records.summaries(key_id, RANKED))[:MAX_BOARDS]
    if prefers_page():
        now = records.now()
        template_members = overview.template_values(counters, alive, recent, leading, RANKED, now)
        template_members |= {"key_name": key.name if key else None, "keyed": auth_required()}
        refreshes = query_data["refresh"] == ON
        response = page("dashboard.html", reloads=refreshes, **template_members, refreshes=refreshes)
    else:
        response = jsonify(
            {
                "name": documentation.TITLE,
                "version": documentation.VERSION,
                "jobs_by_state": {state.value: counters[f"by_state:{state.value}"] for state in State},
                "finished_last_5_minutes": counters["finished_last_300_s"],
                "workers": [
                    {"name": one.name, "host": one.host, "gpu_name": one.gpu_name, "quarantined": one.quarantined}
                    for one in alive
                ],
                "recent_jobs": [_recent(view) for view in recent],
                "leaderboards": [_board(board) for board in leading],
                "links": {"documentation": "/docs", "openapi": "/openapi.json", "health": "/health", "jobs": "/jobs"},
            }
        )
    response.headers["Vary"] = "Accept"
    return response


def _recent(view: JobView) -> dict[str, Any]:
    whole = summary(view)
    shown = ("job_id", "name", "operation", "kernel_type", "state", "stage", "submitted_at", "summary")
    return {name: whole[name] for name in shown} | {"report": f"{location(view.job_id)}/report"}


def _board(board: Board) -> dict[str, Any]:
    return {
        "reference": board.reference,
        "device": board.device,
        "leaders": [
            {"job_id": leader.job_id, "name": leader.name, **asdict(leader.summary)} for leader in board.leaders
        ],
    }
