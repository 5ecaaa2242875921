"""Traces of requests, where an OTLP endpoint is configured: OpenTelemetry's instrumentation of Flask and Redis."""

from __future__ import annotations

from flask import Flask

from tasks.app import app as celery_app
from tasks.jobs.submit import TASK
from tasks.node import telemetry


def trace_requests(app: Flask) -> None:
    """Trace the application's requests, with the messages and Redis calls of each."""
    # Imported after `telemetry`, which says what to install.
    from opentelemetry.instrumentation.flask import FlaskInstrumentor
    from opentelemetry.instrumentation.redis import RedisInstrumentor

    telemetry.start("kernel-eval-api")
    # The instrumentation of Celery ends the span of a sent message only if Celery's default application has the task.
    celery_app.set_default()
    celery_app.task(name=TASK)(_sent_by_name)
    RedisInstrumentor().instrument(raise_exception_on_conflict=True)
    FlaskInstrumentor().instrument_app(app)


def _sent_by_name() -> None:
    """Stands for the workers' task; nothing runs it."""
