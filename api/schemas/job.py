"""A job in the API: the record's view, with the original service's status words beside ours."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from apiflask import Schema
from marshmallow import fields

from api.pages import evidence, next_step
from api.pages.stored_record import read_or
from api.pages.verdict import verdict
from api.schemas.fields import one_of
from api.schemas.outcome import KernelResultSchema, SpeedupSchema, SummarySchema
from domain.flags.codes import FlagCode
from domain.job import Stage, State
from domain.result import CANDIDATE, REFERENCE
from tasks.jobs.job_view import QUEUE_TIMEOUT, JobView

_LEGACY_STATUS: dict[State | Stage, str] = {
    Stage.QUEUED: "submitted",
    Stage.BUILD: "compiling",
    Stage.WAIT_FOR_DEVICE: "compiling",
    Stage.LOAD: "validating",
    Stage.VALIDATE: "validating",
    Stage.TIME: "profiling",
    Stage.INSPECT: "profiling",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.CANCELLED: "failed",
}
INFRASTRUCTURE_ERROR = "infrastructure_error"
LEGACY_STATUSES = tuple(dict.fromkeys(_LEGACY_STATUS.values()))


def location(job_id: str) -> str:
    """The job's path in the API."""
    return f"/job/{job_id}"


def summary(view: JobView) -> dict[str, Any]:
    """The body of a job without its result."""
    cancelled = view.state is State.CANCELLED
    return {
        "job_id": view.job_id,
        "name": view.name,
        "operation": view.operation,
        "kernel_type": view.kernel_type,
        "state": view.state.value,
        "stage": view.stage.value,
        "status": _LEGACY_STATUS[view.state if view.state.terminal else view.stage],
        "interim_correct": view.interim_correct,
        "queue_position": view.queue_position,
        "priority": view.priority,
        "gpu": view.gpu,
        "submitted_at": view.submitted_at,
        "created_at": view.submitted_at,
        "timeout": view.timeout,
        "build_timeout": view.timeout if view.build_timeout is None else view.build_timeout,
        "queue_timeout": view.queue_timeout,
        "attempt": view.attempt,
        "worker": view.worker,
        "batch_id": view.batch_id,
        "batch_index": view.batch_index,
        "cancel_requested": view.cancel_requested,
        "timeline": [entry.to_wire() for entry in view.timeline],
        "failed_attempts": failed_attempts(view),
        "webhook": asdict(view.webhook) if view.webhook else None,
        "error_type": INFRASTRUCTURE_ERROR if view.state is State.FAILED else QUEUE_TIMEOUT if view.expired else None,
        "error": "cancelled on request" if cancelled and not view.expired else view.error,
        "summary": outcome(view),
        "next": next_step.in_list(view),
    }


def outcome(view: JobView) -> dict[str, Any] | None:
    """A completed job in short; None for any other."""
    return asdict(view.summary) if view.summary else None


def failed_attempts(view: JobView) -> list[dict[str, Any]]:
    return [asdict(attempt) for attempt in view.failed_attempts]


def body(view: JobView) -> dict[str, Any]:
    """The JSON response about a job: summary, explanation, report path and result."""
    return {**summary(view), **_in_words(view), "result": result(view)}


def result(view: JobView) -> dict[str, Any] | None:
    """The result about the kernel, with the failed attempts of a job that was retried."""
    if view.result is None:
        return None
    tried = {"failed_attempts": failed_attempts(view)} if view.failed_attempts else {}
    flags = read_or(lambda: evidence.flags(view.result or {}), list[dict[str, Any]]())
    return {**view.result, "name": view.name, **_in_words(view), "flags": flags, "summary": outcome(view), **tried}


def _in_words(view: JobView) -> dict[str, Any]:
    return {
        "explanation": verdict(view).sentence,
        "next": next_step.of_job(view),
        "report": f"{location(view.job_id)}/report",
    }


def listed_next_field() -> fields.String:
    return fields.String(allow_none=True, metadata={"description": "What to do next, in a sentence; null: it passed."})


def name_field() -> fields.String:
    return fields.String(allow_none=True, metadata={"description": "The request's `name`; null: it has none."})


def ignored_field() -> fields.List[Any]:
    return fields.List(
        fields.String(),
        metadata={"description": "Fields of the body that mean nothing here, each with what it looks like. Or absent."},
    )


class StepSchema(Schema):
    """One entry of a job's timeline."""

    stage = fields.String(required=True, validate=one_of(Stage))
    at = fields.Float(required=True, metadata={"description": "Epoch seconds, by the broker's clock."})
    attempt = fields.Integer(required=True)
    reason = fields.String(metadata={"description": "Why the job went back to the queue."})


class FailedAttemptSchema(Schema):
    """An attempt that ended by a fault of the service, not of the kernel."""

    attempt = fields.Integer(required=True)
    worker = fields.String(required=True)
    stage = fields.String(required=True, validate=one_of(Stage), metadata={"description": "How far it came."})
    at = fields.Float(required=True, metadata={"description": "When it was given up: epoch seconds."})
    reason = fields.String(required=True)


class WebhookStateSchema(Schema):
    """Whether a job's end was delivered to its submission's webhook."""

    state = fields.String(required=True, validate=one_of(("pending", "delivered", "failed")))
    attempts = fields.Integer(required=True)
    last_error = fields.String(required=True, allow_none=True)


class JobSummarySchema(Schema):
    """A job without its result."""

    job_id = fields.String(required=True)
    name = name_field()
    operation = fields.String(validate=one_of(("evaluate", "compare")))
    kernel_type = fields.String()
    state = fields.String(
        required=True,
        validate=one_of(State),
        metadata={"description": "`completed` is every verdict about a kernel; `failed` is the service's own fault."},
    )
    stage = fields.String(required=True, validate=one_of(Stage))
    status = fields.String(
        validate=one_of(LEGACY_STATUSES), metadata={"description": "The original service's word for state and stage."}
    )
    interim_correct = fields.Boolean(
        required=True,
        allow_none=True,
        metadata={
            "description": "/compare, while it runs: whether every output compared so far is right. Known before the "
            "timing begins; timed calls are compared too, so `true` may still become `false`. null: not known, or done."
        },
    )
    queue_position = fields.Integer(
        required=True,
        allow_none=True,
        metadata={
            "description": "Jobs that go before it; 0 is the next one. null: not queued, or pausing for a minute or "
            "more before its last attempt."
        },
    )
    priority = fields.Integer()
    gpu = fields.String(allow_none=True, metadata={"description": "The model that it asks for; null: any."})
    submitted_at = fields.Float(required=True, metadata={"description": "Epoch seconds."})
    created_at = fields.Float(metadata={"description": "submitted_at, under the original's name."})
    timeout = fields.Integer(metadata={"description": "Seconds for running."})
    build_timeout = fields.Integer(metadata={"description": "Seconds for building."})
    queue_timeout = fields.Integer(
        allow_none=True, metadata={"description": "Seconds until it must have been begun; null: it waits for ever."}
    )
    attempt = fields.Integer(metadata={"description": "Workers that have taken the job."})
    worker = fields.String(allow_none=True)
    batch_id = fields.String(allow_none=True)
    batch_index = fields.Integer(
        allow_none=True, metadata={"description": "Which of the batch's bodies it was, from 0."}
    )
    cancel_requested = fields.Boolean()
    timeline = fields.List(fields.Nested(StepSchema), required=True)
    failed_attempts = fields.List(
        fields.Nested(FailedAttemptSchema),
        required=True,
        metadata={"description": "Empty unless the service failed and the job was tried again."},
    )
    webhook = fields.Nested(
        WebhookStateSchema, allow_none=True, metadata={"description": "null until the job has ended, and without one."}
    )
    error_type = fields.String(
        allow_none=True,
        validate=one_of((INFRASTRUCTURE_ERROR, QUEUE_TIMEOUT)),
        metadata={
            "description": "`infrastructure_error` when a job failed, `queue_timeout` when it was cancelled because "
            "nobody began it in time, else null."
        },
    )
    error = fields.String(
        allow_none=True, metadata={"description": "Why a job failed or was cancelled; null in every other state."}
    )
    summary = fields.Nested(SummarySchema, allow_none=True, metadata={"description": "In short; null: no verdict."})
    next = listed_next_field()


class InWordsSchema(Schema):
    """The members of a job and of its result for a person."""

    explanation = fields.String(metadata={"description": "What was found, in a sentence."})
    next = fields.String(required=True, metadata={"description": "What to do next, in a sentence."})
    report = fields.String(metadata={"description": "The path of the page for a person."})
    ignored = ignored_field()


class FlagSchema(Schema):
    """One flag: it changes no verdict. Match `code`; `message` is for people and may change."""

    code = fields.String(required=True, validate=one_of(FlagCode))
    message = fields.String(required=True)
    data = fields.Dict(required=True, metadata={"description": "The message's figures, with units in their names."})
    kernel = fields.String(
        required=True,
        allow_none=True,
        validate=one_of((CANDIDATE, REFERENCE)),
        metadata={"description": "The side that it is about; null: the task or the GPU."},
    )


class ResultSchema(InWordsSchema):
    """The original service's response, with our additions; `kernel_exec_result` is about the (custom) kernel."""

    job_id = fields.String(required=True)
    name = name_field()
    status = fields.String(required=True, metadata={"description": '"success": a verdict was reached, whatever it is.'})
    verdict = fields.String(required=True)
    summary = fields.Nested(SummarySchema, allow_none=True, metadata={"description": "In short; null: no verdict."})
    flags = fields.List(
        fields.Nested(FlagSchema),
        metadata={"description": "All that qualifies the verdict. docs/errors.md has the codes."},
    )
    pod_name = fields.String(allow_none=True)
    pod_ip = fields.String(allow_none=True)
    gpu_type = fields.String()
    kernel_exec_result = fields.Nested(KernelResultSchema, required=True)
    ref_runtime = fields.Dict(metadata={"description": "/compare only: the reference's times in ms."})
    ref_result = fields.Nested(KernelResultSchema, metadata={"description": "/compare only."})
    speedup = fields.Nested(
        SpeedupSchema, allow_none=True, metadata={"description": "/compare only; null when not measured."}
    )
    speedup_unavailable_reason = fields.String(
        allow_none=True, metadata={"description": "/compare only: why there is no `speedup`, and what helps."}
    )
    cases = fields.List(fields.Dict(), metadata={"description": "Each visible case; absent without cases."})
    cases_summary = fields.Dict(
        metadata={"description": "How many cases were judged and passed, of all and of hidden."}
    )
    environment = fields.Dict()
    budget = fields.Dict(metadata={"description": "`name`, and in `skipped_checks` what that budget did not check."})
    qualification = fields.Dict(
        metadata={"description": "/qualify only: whether the kernel is `fit`, a `sentence`, and its `checks`."}
    )
    baselines = fields.List(
        fields.Dict,
        metadata={"description": "With `baselines`: each form of the reference, its time, and the speed-up."},
    )
    confirmation = fields.Dict(
        metadata={"description": "Of a job of /job/<job_id>/confirm: whether the first verdict and speed-up stand."}
    )
    reused_from = fields.Dict(
        metadata={"description": "With `reuse`: the `job_id` that this answer was given to first, and `at` when."}
    )
    failed_attempts = fields.List(
        fields.Nested(FailedAttemptSchema), metadata={"description": "Only where the job was tried again."}
    )


class JobSchema(InWordsSchema, JobSummarySchema):
    """A job; `result` is the body that waiting for it would have returned."""

    result = fields.Nested(
        ResultSchema, required=True, allow_none=True, metadata={"description": "null until the job has completed."}
    )


class JobListSchema(Schema):
    """A page of jobs, newest first."""

    jobs = fields.List(fields.Nested(JobSummarySchema), required=True)
    next_cursor = fields.String(
        required=True, allow_none=True, metadata={"description": "Ask with ?cursor= for the next page; null: the last."}
    )


class CancelledSchema(Schema):
    """The present state of one of many jobs to cancel."""

    job_id = fields.String(required=True)
    state = fields.String(required=True, validate=one_of(State))
    cancel_requested = fields.Boolean(required=True)


class CancelResponseSchema(Schema):
    """The requested jobs that are known, and those that are not."""

    cancelled = fields.Integer(required=True, metadata={"description": "Those that this request has cancelled."})
    already_finished = fields.Integer(
        required=True, metadata={"description": "Those that it did not: they had ended, cancelled ones included."}
    )
    cancelling = fields.Integer(required=True, metadata={"description": "Those that run and will stop shortly."})
    jobs = fields.List(fields.Nested(CancelledSchema), required=True)
    not_found = fields.List(fields.String(), required=True)
