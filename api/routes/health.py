"""GET /health: whether the service would judge a kernel sent now, and on which workers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from apiflask import APIBlueprint, Schema
from flask import Response, jsonify
from marshmallow import fields
from redis.exceptions import RedisError

from api.auth.authentication import is_anonymous
from api.http.context import app_context
from api.http.drain import STOPPING, draining
from api.observability.stats import job_stats
from domain.job import State
from tasks.fleet.heartbeat import WorkerView, workers
from tasks.node.broker_settings import CODES, BrokerWarning
from tasks.node.redis_client import WritesRefused, require_writes

blueprint = APIBlueprint("health", __name__, tag="Service")

READY, UNAVAILABLE = "ready", "unavailable"


class BrokerWarningSchema(Schema):
    """A problem with the settings of Redis; jobs are judged all the same."""

    code = fields.String(required=True, metadata={"enum": CODES})
    message = fields.String(required=True)


class HealthSchema(Schema):
    """Whether the service can judge; `reasons` says why not. A client without a required key gets only `status`."""

    status = fields.String(required=True, metadata={"enum": ["healthy", "unhealthy"]})
    reasons = fields.List(fields.String())
    error = fields.String(metadata={"description": "The reasons in one string; only when unhealthy."})
    gpu_available = fields.Boolean()
    gpu_count = fields.Integer()
    broker = fields.String(metadata={"enum": [READY, UNAVAILABLE]})
    compilation_service = fields.String(metadata={"enum": [READY, UNAVAILABLE]})
    profiling_service = fields.String(metadata={"enum": [READY, UNAVAILABLE]})
    quarantined = fields.List(
        fields.String(), metadata={"description": "Workers that take no jobs until their device passes a self-test."}
    )
    workers = fields.List(fields.Dict())
    broker_warnings = fields.List(
        fields.Nested(BrokerWarningSchema),
        metadata={"description": "What is wrong with the settings of Redis; looked at once a minute."},
    )
    job_stats = fields.Dict(allow_none=True, metadata={"description": "null when the broker cannot be asked."})
    gpu_manager = fields.Dict(metadata={"description": "`available_gpus`: those without a job."})


@blueprint.get("/health")
@blueprint.output(HealthSchema, description="A worker is there to judge")
@blueprint.doc(summary="Health", responses={503: "No worker, or no broker; the same body"})
def health() -> Response:
    """Reads the workers' recent heartbeats from the broker; never asks a worker itself."""
    reasons = [STOPPING] if draining() else []
    alive: list[WorkerView] = []
    counters: dict[str, float] | None = None
    warnings: list[BrokerWarning] = []
    try:
        alive, counters = workers(app_context().redis), app_context().records.counters()
        warnings = app_context().broker.warnings()
        if alive and all(worker.quarantined for worker in alive):
            reasons.append("every worker is quarantined: its device failed job after job; see `workers`, and the cards")
        require_writes(app_context().redis)
        if not alive:
            reasons.append("no worker has been heard of in the last seconds: start one, or read its log")
    except WritesRefused as error:
        reasons.append(f"{error}: free its memory or disk; running jobs wait about 2 minutes for that")
    except RedisError as error:
        reasons.append(f"the broker cannot be asked ({type(error).__name__}): start Redis, or check CELERY_BROKER_URL")
    body = {
        **_body(alive, counters, reasons),
        "broker_warnings": [asdict(warning) for warning in warnings],
    }
    response = jsonify({"status": body["status"]} if is_anonymous() else body)
    response.status_code = 503 if reasons else 200
    return response


def _body(alive: list[WorkerView], counters: dict[str, float] | None, reasons: list[str]) -> dict[str, Any]:
    taking = [worker for worker in alive if worker.quarantined is None]
    gpus = {worker.gpu_uuid for worker in taking if worker.gpu_available}
    busy = counters[f"by_state:{State.RUNNING.value}"] if counters else 0
    service = READY if taking else UNAVAILABLE
    return {
        "status": "unhealthy" if reasons else "healthy",
        "reasons": reasons,
        **({"error": "; ".join(reasons)} if reasons else {}),
        "gpu_available": bool(gpus),
        "gpu_count": len(gpus),
        "broker": UNAVAILABLE if counters is None else READY,
        "compilation_service": service,
        "profiling_service": service,
        "quarantined": [worker.name for worker in alive if worker.quarantined is not None],
        "workers": [asdict(worker) for worker in alive],
        "job_stats": None if counters is None else job_stats(counters),
        "gpu_manager": {"available_gpus": max(0, len(gpus) - int(busy))},
    }
