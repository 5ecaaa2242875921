"""GET /metrics: the state of the whole service, for Prometheus, from any process of the API."""

from __future__ import annotations

from typing import Any

from apiflask import APIBlueprint
from flask import Response, request
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from api.http.context import app_context
from api.observability.service_metrics import ServiceCollector

blueprint = APIBlueprint("metrics", __name__, tag="Service")

_TEXT = {"schema": {"type": "string"}}
_ANSWERS: dict[int | str, Any] = {
    200: {
        "description": "Every metric in Prometheus' text format, or in OpenMetrics' where that is asked for",
        "content": {"text/plain": _TEXT, "application/openmetrics-text": _TEXT},
    }
}


@blueprint.get("/metrics")
@blueprint.doc(summary="Metrics", responses=_ANSWERS)
def metrics() -> Response:
    """Reads all metrics from Redis, so that all processes report the same. docs/operations.md explains each metric."""
    registry = CollectorRegistry()
    registry.register(ServiceCollector(app_context().redis, app_context().records))
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return Response(encode(registry), content_type=content_type)
