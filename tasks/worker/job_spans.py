"""OpenTelemetry spans of a job: its POST, the job and its stages, made from the record after the job has ended.

A job's trace id is its job id without hyphens, and its span ids follow from the spans' names. Every process can
therefore name a parent span without communication, and a user finds a job's trace by its id. Needs the group
`telemetry`.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from domain.job import Stage, State
from tasks.jobs.job_view import JobView
from tasks.jobs.trace_queue import Entry

POST, JOB = "post", "job"
NS = 1_000_000_000
API, WORKER = "kernel-eval-api", "kernel-eval-worker"

Attributes = dict[str, Any]


def trace_id(job_id: str) -> int:
    """The job's id if it is a UUID, as all ids of the service are; otherwise a digest of it."""
    try:
        return UUID(job_id).int
    except ValueError:
        return int.from_bytes(hashlib.sha256(job_id.encode()).digest()[:16])


def span_id(job_id: str, name: str) -> int:
    """The id of the span of that name in the job's trace."""
    return int.from_bytes(hashlib.sha256(f"{job_id}/{name}".encode()).digest()[:8]) or 1


class _PresetIds(IdGenerator):
    """Returns ids that the caller sets before it starts a span."""

    trace = 0
    span = 0

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span


class _Ended(SpanProcessor):
    def __init__(self, into: list[ReadableSpan]) -> None:
        self._into = into

    def on_end(self, span: ReadableSpan) -> None:
        self._into.append(span)


class Spans:
    """Makes spans; `take` returns those made since the last call. Not thread-safe."""

    def __init__(self) -> None:
        self._ids = _PresetIds()
        self._finished: list[ReadableSpan] = []
        self._tracers = {service: self._tracer(service) for service in (API, WORKER)}

    def take(self) -> Sequence[ReadableSpan]:
        spans = list(self._finished)
        self._finished.clear()
        return spans

    def add_post(self, post: Entry) -> None:
        """Add the span of the request that submitted a job. It links to an incoming trace, but does not join it."""
        carrier = {"traceparent": post["traceparent"]}
        outer = trace.get_current_span(TraceContextTextMapPropagator().extract(carrier))
        links = [Link(outer.get_span_context())] if outer.get_span_context().is_valid else []
        attributes = {
            "http.request.method": "POST",
            "url.path": post["path"],
            "http.response.status_code": post["status"],
            "kernel_eval.request_id": post["request_id"],
            "kernel_eval.job_id": post["job"],
        }
        self._span(
            *(API, post["job"], POST, None, f"POST {post['path']}", post["began"], post["ended"], attributes),
            kind=SpanKind.SERVER,
            links=links,
            failed=post["status"] >= 500,
        )

    def add_job(self, view: JobView) -> None:
        """Add the span of the job and of each stage of each attempt. An attempt that the service failed is an error."""
        timeline = view.timeline
        if not view.state.terminal or not timeline:
            return
        about: Attributes = {
            "kernel_eval.job_id": view.job_id,
            "kernel_eval.operation": view.operation,
            "kernel_eval.kernel_type": view.kernel_type,
            "kernel_eval.state": view.state.value,
            "kernel_eval.cause": view.cause or "",
            "kernel_eval.attempts": view.attempt,
        }
        ended = timeline[-1].at
        failed = view.state is State.FAILED
        self._span(WORKER, view.job_id, JOB, POST, JOB, view.submitted_at, ended, about, failed=failed)
        workers = {attempt.attempt: attempt.worker for attempt in view.failed_attempts}
        for index, (entry, following) in enumerate(itertools.pairwise(timeline)):
            attributes: Attributes = {"kernel_eval.attempt": entry.attempt}
            if entry.stage != Stage.QUEUED.value:
                worker = workers.get(entry.attempt, view.worker)
                attributes |= {"kernel_eval.worker": worker} if worker else {}
            self._span(
                *(WORKER, view.job_id, f"{index}/{entry.stage}", JOB, entry.stage),
                *(entry.at, following.at, attributes),
                failed=following.reason is not None or (failed and following is timeline[-1]),
            )

    def _tracer(self, service: str) -> trace.Tracer:
        resource = Resource.create({"service.name": service})
        # Sample every job: a collector can select jobs after their end, when the outcome is known.
        provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        provider.add_span_processor(_Ended(self._finished))
        return provider.get_tracer("kernel_eval")

    def _span(
        self,
        service: str,
        job_id: str,
        name: str,
        parent: str | None,
        display_name: str,
        began: float,
        ended: float,
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
        failed: bool = False,
    ) -> None:
        self._ids.trace, self._ids.span = trace_id(job_id), span_id(job_id, name)
        outside = trace.set_span_in_context(trace.INVALID_SPAN)
        if parent is not None:
            above = SpanContext(self._ids.trace, span_id(job_id, parent), True, TraceFlags(TraceFlags.SAMPLED))
            outside = trace.set_span_in_context(NonRecordingSpan(above))
        span = self._tracers[service].start_span(
            display_name, context=outside, kind=kind, attributes=attributes, links=links, start_time=round(began * NS)
        )
        if failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end(end_time=round(max(began, ended) * NS))
