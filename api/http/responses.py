"""HTTP responses about a job: its state, its result after a wait, or the problem that ended it."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

from flask import Response, jsonify, request

from api.http.context import app_context
from api.http.long_poll import parse_wait
from api.http.problems import Kind, Problem
from api.schemas.job import INFRASTRUCTURE_ERROR, body, failed_attempts, location, result
from domain.job import State
from tasks.jobs.job_store import JobView

POLL_AFTER_S = 1
CROWDED_RETRY_S = 5
"""Seconds after which a client may retry that found no free slot to wait in and got a response at once."""


def job(view: JobView, status: int = 200, besides: Mapping[str, Any] = MappingProxyType({})) -> Response:
    response = jsonify({**body(view), **besides})
    response.status_code = status
    if not view.state.terminal:
        response.headers["Retry-After"] = str(POLL_AFTER_S)
    return response


def wait_for_job(view: JobView, query: dict[str, Any]) -> tuple[JobView, dict[str, str]]:
    """Waits for the job as the client asked; returns the job and headers that describe the wait."""
    seconds = parse_wait(query)
    after, slot_acquired = app_context().long_poll.wait(view, seconds)
    return after, _wait_headers(query, seconds, slot_acquired=slot_acquired)


def wait_for_jobs(views: Sequence[JobView], query: dict[str, Any]) -> tuple[list[JobView], dict[str, str]]:
    """Waits for many jobs, without their results; returns the jobs and headers that describe the wait."""
    seconds = parse_wait(query)
    after, slot_acquired = app_context().long_poll.wait_for_all(views, seconds)
    return after, _wait_headers(query, seconds, slot_acquired=slot_acquired)


def _wait_headers(query: dict[str, Any], seconds: float, *, slot_acquired: bool) -> dict[str, str]:
    if not slot_acquired:
        return {"Retry-After": str(CROWDED_RETRY_S)}
    return {"Preference-Applied": f"wait={seconds:g}"} if seconds and "wait" not in query else {}


def submitted(view: JobView, query: dict[str, Any], ignored: list[str]) -> Response:
    """202 with the job; or, after a wait, 200 with the original service's body.

    Both list the fields of the body that were `ignored`. Raises Problem when the job failed (our fault) or was
    cancelled meanwhile.
    """
    view, headers = wait_for_job(view, query)
    besides = {"ignored": ignored} if ignored else {}
    if view.state is State.COMPLETED and view.result is not None:
        response = jsonify({**(result(view) or {}), **besides})
        if view.result.get("gpu_type"):
            headers["X-GPU-Type"] = view.result["gpu_type"]
    elif view.state is State.FAILED:
        raise Problem(Kind.JOB_FAILED, f"{view.error}; submit the job again", headers, **_original_failure(view))
    elif view.state is State.CANCELLED:
        cause = view.error if view.expired else "cancelled while you waited"
        raise Problem(Kind.JOB_CANCELLED, f"job {view.job_id} was {cause}", headers, **_ids(view))
    else:
        response = job(view, 202, besides)
    response.headers.update({"Location": location(view.job_id), **headers})
    return response


def _ids(view: JobView) -> dict[str, Any]:
    return {"job_id": view.job_id, "state": view.state.value, "job": location(view.job_id)}


def _original_failure(view: JobView) -> dict[str, Any]:
    """The members of the original service's failure responses."""
    return {
        **_ids(view),
        "error_type": INFRASTRUCTURE_ERROR,
        "failed_attempts": failed_attempts(view),
        "kernel_exec_result": {},
        "ref_runtime": {},
        "pod_name": _host(),
        "pod_ip": _address(),
    }


@cache
def _host() -> str:
    return socket.gethostname()


@cache
def _address() -> str | None:
    try:
        return socket.gethostbyname(_host())
    except OSError:
        return None


def disable_caching(response: Response) -> Response:
    """Forbids caching of responses about jobs and of errors (the original's headers)."""
    if not request.path.startswith("/docs"):
        response.headers.update(
            {"Cache-Control": "no-cache, no-store, must-revalidate", "Pragma": "no-cache", "Expires": "0"}
        )
    return response
