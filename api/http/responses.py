"""The HTTP answers about a job: its state, its result once waited for, or the problem that ended it."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

from flask import Response, jsonify, request

from api.http.context import desk
from api.http.long_poll import wanted
from api.http.problems import Kind, Problem
from api.schemas.job import INFRASTRUCTURE_ERROR, body, location, result
from domain.job import State
from tasks.jobs.job_store import JobView

POLL_AFTER_S = 1
CROWDED_RETRY_S = 5
"""Asked of a client that found every place to wait taken and was answered at once."""


def job(view: JobView, status: int = 200, besides: Mapping[str, Any] = MappingProxyType({})) -> Response:
    """The job as it is."""
    response = jsonify({**body(view), **besides})
    response.status_code = status
    if not view.state.terminal:
        response.headers["Retry-After"] = str(POLL_AFTER_S)
    return response


def held(view: JobView, query: dict[str, Any]) -> tuple[JobView, dict[str, str]]:
    """The job after the wait that the client asked for, and the headers that say how that went."""
    seconds = wanted(query)
    after, placed = desk().waiters.hold(view, seconds)
    return after, _waited(query, seconds, placed=placed)


def all_held(views: Sequence[JobView], query: dict[str, Any]) -> tuple[list[JobView], dict[str, str]]:
    """The same for many jobs, without their results."""
    seconds = wanted(query)
    after, placed = desk().waiters.hold_all(views, seconds)
    return after, _waited(query, seconds, placed=placed)


def _waited(query: dict[str, Any], seconds: float, *, placed: bool) -> dict[str, str]:
    if not placed:
        return {"Retry-After": str(CROWDED_RETRY_S)}
    return {"Preference-Applied": f"wait={seconds:g}"} if seconds and "wait" not in query else {}


def submitted(view: JobView, query: dict[str, Any], ignored: list[str]) -> Response:
    """202 with the job, or after the wait that was asked for: 200 with the original service's body.

    Both name the fields of the body that were `ignored`. Raises Problem when the job failed (our fault) or was
    cancelled meanwhile.
    """
    view, headers = held(view, query)
    besides = {"ignored": ignored} if ignored else {}
    if view.state is State.COMPLETED and view.result is not None:
        response = jsonify({**(result(view) or {}), **besides})
        if view.result.get("gpu_type"):
            headers["X-GPU-Type"] = view.result["gpu_type"]
    elif view.state is State.FAILED:
        raise Problem(Kind.JOB_FAILED, f"{view.error}; submit the job again", headers, **_original_failure(view))
    elif view.state is State.CANCELLED:
        told = view.error if view.expired else "cancelled while you waited"
        raise Problem(Kind.JOB_CANCELLED, f"job {view.job_id} was {told}", headers, **_ids(view))
    else:
        response = job(view, 202, besides)
    response.headers.update({"Location": location(view.job_id), **headers})
    return response


def _ids(view: JobView) -> dict[str, Any]:
    return {"job_id": view.job_id, "state": view.state.value, "job": location(view.job_id)}


def _original_failure(view: JobView) -> dict[str, Any]:
    """What the original service's failure answers hold."""
    return {
        **_ids(view),
        "error_type": INFRASTRUCTURE_ERROR,
        "failed_attempts": view.failed_attempts,
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


def fresh(response: Response) -> Response:
    """No answer about a job, and no error, is to be cached (the original's headers)."""
    if not request.path.startswith("/docs"):
        response.headers.update(
            {"Cache-Control": "no-cache, no-store, must-revalidate", "Pragma": "no-cache", "Expires": "0"}
        )
    return response
