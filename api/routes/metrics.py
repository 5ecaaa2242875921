"""GET /metrics: how the whole service is, for Prometheus, from whichever process of the API is asked."""

from __future__ import annotations

from typing import Any

from apiflask import APIBlueprint
from flask import Response, request
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from api.http.context import desk
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
    """Read from Redis when asked, so all processes say the same. docs/operations.md has what each metric means."""
    registry = CollectorRegistry()
    registry.register(ServiceCollector(desk().redis, desk().records))
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return Response(encode(registry), content_type=content_type)
