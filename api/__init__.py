"""The HTTP API: validates, records and queues jobs, and reports on them. Imports no GPU library."""

from __future__ import annotations

from apiflask import APIFlask
from apiflask.scaffold import parser

from api.auth.authentication import open_access
from api.http import json_body, problems, responses
from api.http.context import create_context
from api.http.request_id import RequestIds
from api.observability import stats
from api.openapi import documentation
from api.routes import (
    admin,
    artifacts,
    batches,
    confirm,
    dashboard,
    events,
    health,
    jobs,
    metrics,
    pages,
    report,
    sources,
    submissions,
)
from domain.settings import settings


def create_app() -> APIFlask:
    """The WSGI application, configured by the environment; it connects to Redis with the first request."""
    app = APIFlask(__name__, title=documentation.TITLE, version=documentation.VERSION, docs_path=None)
    app.config["MAX_CONTENT_LENGTH"] = settings().max_body
    app.json.sort_keys = False  # type: ignore[attr-defined]
    documentation.configure(app)
    parser.location_loader("json")(json_body.load)
    json_body.register(app)
    problems.register(app)
    app.after_request(responses.disable_caching)
    open_access(app, settings(), create_context(app).redis)
    for noun in (
        *(submissions, sources, confirm, jobs, batches, artifacts, report, pages, events, dashboard),
        *(health, stats, metrics, admin, documentation),
    ):
        app.register_blueprint(noun.blueprint)
    app.wsgi_app = RequestIds(app.wsgi_app)  # type: ignore[method-assign]
    if settings().otlp_endpoint is not None:
        from api.observability.tracing import trace_requests  # Its packages are only required with an endpoint.

        trace_requests(app)
    return app
