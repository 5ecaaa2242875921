"""Traces, where an OTLP endpoint is configured: OpenTelemetry's own instrumentation of Celery.

`api/observability/tracing.py` adds the API's requests and Redis calls. A worker's Redis calls are not traced: a pool
child pulses five times a second, and would encode spans while it times kernels. OpenTelemetry's own variables configure
the export (OTEL_EXPORTER_OTLP_HEADERS, …). Without the group `telemetry` the import of this module ends the process.
"""

from __future__ import annotations

from typing import Any

try:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.instrumentation.celery import CeleryInstrumentor
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult
except ModuleNotFoundError as error:
    advice = "OTEL_EXPORTER_OTLP_ENDPOINT is set: pip install -c constraints.txt --group telemetry, or unset it"
    raise SystemExit(f"{advice} ({error})") from error

TIMEOUT_S = 3.0
"""Maximum seconds of one delivery with all its tries; a process that stops does not wait longer for it."""

_BEGIN_TRACES = (trace.SpanKind.SERVER, trace.SpanKind.CONSUMER)


class _RequestsAndTasks(Sampler):
    """Begins traces with requests and tasks; background threads of the API call Redis outside of both."""

    def should_sample(
        self, parent_context: Any, trace_id: int, name: str, kind: trace.SpanKind | None = None, *_: Any, **__: Any
    ) -> SamplingResult:
        return SamplingResult(Decision.RECORD_AND_SAMPLE if kind in _BEGIN_TRACES else Decision.DROP)

    def get_description(self) -> str:
        return "requests and tasks"


def start(service: str) -> None:
    """Trace this process under that service name, once and after every fork."""
    provider = TracerProvider(
        sampler=ParentBased(_RequestsAndTasks()), resource=Resource.create({"service.name": service})
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=TIMEOUT_S)))
    trace.set_tracer_provider(provider)
    CeleryInstrumentor().instrument(raise_exception_on_conflict=True)


def stop() -> None:
    """Export what is left; for at most TIMEOUT_S."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        provider.shutdown()
