"""Exports the traces of ended jobs to an OpenTelemetry collector, in a thread of every worker's main process.

No job waits for it: a collector that is unreachable, slow or broken only loses the traces of that time. The worker
imports it only if an endpoint is configured; it needs the group `telemetry`.
"""

from __future__ import annotations

import logging

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExportResult
from redis import Redis

from tasks.jobs import trace_queue
from tasks.jobs.job_store import JobStore
from tasks.node.periodic_thread import PeriodicThread
from tasks.worker.job_spans import Spans

EVERY_S = 1.0
AT_ONCE = 100
TIMEOUT_S = 3.0
"""Maximum seconds of one delivery, with all its tries; a worker that stops does not wait longer for it."""

log = logging.getLogger(__name__)


class Tracing:
    """Exports the traces; OpenTelemetry's own variables configure how (OTEL_EXPORTER_OTLP_HEADERS, …)."""

    def __init__(self, redis: Redis, records: JobStore) -> None:
        self._redis = redis
        self._records = records
        self._spans = Spans()
        self._exporter = OTLPSpanExporter(timeout=TIMEOUT_S)
        self._succeeded = True
        self._loop = PeriodicThread("tracing", self.send, EVERY_S)
        # The exporter logs every try; one line for a series of failures is enough.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]
        self._loop.stop()

    def send(self) -> None:
        """Export everything in the queue, until a delivery fails."""
        trace_queue.want(self._redis)
        while entries := trace_queue.take(self._redis, AT_ONCE):
            for view in self._records.views([entry["job"] for entry in entries if "job" in entry]):
                self._spans.add_job(view)
            for entry in entries:
                if "post" in entry:
                    self._spans.add_post(entry["post"])
            if not self._delivered():
                return

    def _delivered(self) -> bool:
        spans = self._spans.take()
        if not spans:
            return True
        done = self._exporter.export(spans) is SpanExportResult.SUCCESS
        if not done and self._succeeded:
            log.warning("traces cannot be delivered, retrying; check OTEL_EXPORTER_OTLP_ENDPOINT and the collector")
        self._succeeded = done
        return done
