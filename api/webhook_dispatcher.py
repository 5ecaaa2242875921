"""Delivers webhooks: POSTs each ended job to the URL that its submission named, from a thread of every server process.

The API delivers them, not the workers, because nodes that run untrusted code need no route out of their network.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import logging
import socket
import time
from contextlib import suppress
from threading import Lock, Timer
from typing import Any

from redis import Redis

from api.pages.verdict import verdict
from api.schemas.job import location, outcome
from api.url_policy import Forbidden, connect, destination
from domain.settings import settings
from tasks.jobs.job_store import JobStore, JobView
from tasks.jobs.webhook_outbox import Due, Webhook, Webhooks
from tasks.node.periodic_thread import PeriodicThread

EVERY_S = 1.0
SENDERS = 4
"""Threads of one process: only that many unresponsive receivers together delay the others."""
SIGNATURE = "X-Kernel-Eval-Signature"
TIMEOUT_S, WHOLE_S = 5.0, 10.0
"""Maximum time for each step of a request, and for the whole request, in s."""
ANSWER_BYTES = 1024
GONE = 410

log = logging.getLogger(__name__)


class Dispatcher:
    """Sends due webhooks, one after the other in each of a few threads; `start` makes that periodic.

    Only one thread sends to the receivers of one API key, or without keys to one host. A receiver that always takes the
    whole of `WHOLE_S` thus delays no other group.
    """

    def __init__(self, redis: Redis, records: JobStore) -> None:
        self._records = records
        self._webhooks = Webhooks(redis)
        self._loops = [
            PeriodicThread(f"webhook-dispatcher-{number}", self.run_once, EVERY_S) for number in range(SENDERS)
        ]
        self._busy: set[str] = set()
        self._taking = Lock()

    def start(self) -> None:
        for loop in self._loops:
            loop.start()

    def stop(self) -> None:
        for loop in self._loops:
            loop.stop()

    def run_once(self) -> None:
        """Delivers everything that is due now, except for groups that another thread serves."""
        while (due := self._take()) is not None:
            try:
                self._deliver(due)
            finally:
                with self._taking:
                    self._busy.discard(due.group)

    def _take(self) -> Due | None:
        with self._taking:
            due = self._webhooks.take(self._busy)
            if due is not None:
                self._busy.add(due.group)
            return due

    def _deliver(self, due: Due) -> None:
        view = self._records.get(due.job_id)
        if view is None:
            self._webhooks.failed(due, "the job is no longer kept", final=True)
            return
        try:
            status = post(due.webhook, json.dumps(message(view)).encode())
        except Forbidden as error:
            self._failed(due, str(error), final=True)
        except (OSError, http.client.HTTPException, ValueError, RuntimeError) as error:  # RuntimeError: no thread
            self._failed(due, f"{type(error).__name__}: {error}")
        else:
            if 200 <= status < 300:
                self._webhooks.delivered(due)
            else:
                self._failed(due, f"answered {status}", final=status == GONE)

    def _failed(self, due: Due, error: str, *, final: bool = False) -> None:
        log.warning("job %s: webhook not delivered: %s", due.job_id, error)
        self._webhooks.failed(due, error, final=final)


def message(view: JobView) -> dict[str, Any]:
    """The body of a webhook: a job that has ended, in short; `job` leads to the whole record."""
    return {
        "type": f"job.{view.state.value}",
        "job_id": view.job_id,
        "operation": view.operation,
        "state": view.state.value,
        "explanation": verdict(view).sentence,
        "summary": outcome(view),
        "error": view.error,
        "job": location(view.job_id),
        "report": f"{location(view.job_id)}/report",
    }


def post(webhook: Webhook, body: bytes) -> int:
    """Sends a webhook and returns the response's status; does not follow redirects. Raises OSError, HTTPException,
    Forbidden."""
    to = destination(webhook.url, settings().webhook_hosts)
    connection = connect(to, TIMEOUT_S)
    # A receiver that responds byte by byte would block all later deliveries.
    end = Timer(WHOLE_S, _cut, (connection.sock,))
    end.daemon = True
    try:
        end.start()
        connection.request("POST", to.path, body, headers(body, webhook.secret, time.time()))
        answer = connection.getresponse()
        answer.read(ANSWER_BYTES)
        return answer.status
    finally:
        end.cancel()
        connection.close()


def _cut(opened: socket.socket) -> None:
    with suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)


def headers(body: bytes, secret: str | None, now: float) -> dict[str, str]:
    """The request's headers, with the signature: HMAC-SHA256 over the time, a dot and the body."""
    plain = {"Content-Type": "application/json", "User-Agent": "kernel-eval", "Connection": "close"}
    if secret is None:
        return plain
    at = str(int(now))
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return {**plain, SIGNATURE: f"t={at},v1={digest}"}
