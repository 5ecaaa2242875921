"""A batch in the API: counts of its jobs, and a line for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from apiflask import Schema
from marshmallow import fields

from api.pages import next_step
from api.schemas.fields import one_of
from api.schemas.job import ignored_field, listed_next_field, location, name_field, outcome, summary
from api.schemas.outcome import IntervalSchema
from api.schemas.problem import ProblemSchema
from domain.job import State
from tasks.jobs.job_view import JobView


def progress(views: Sequence[JobView]) -> dict[str, Any]:
    """Counts of the jobs by state and by verdict, and whether all have ended."""
    return {
        "done": all(view.state.terminal for view in views),
        "states": dict(Counter(view.state.value for view in views)),
        "verdicts": dict(Counter(view.summary.verdict for view in views if view.summary)),
    }


def line(view: JobView) -> dict[str, Any]:
    brief = outcome(view) or {}
    measured = brief.get("ratio") is not None
    return {
        "index": view.batch_index,
        "job_id": view.job_id,
        "name": view.name,
        "location": location(view.job_id),
        "state": view.state.value,
        "verdict": brief.get("verdict"),
        "latency_ms": brief.get("latency_ms"),
        "relative_ci": brief.get("relative_ci"),
        "speedup": {name: brief[name] for name in ("ratio", "ci_low", "ci_high")} if measured else None,
        "flag_count": brief.get("flag_count"),
        "error": brief.get("error") or summary(view)["error"],
        "next": next_step.in_list(view),
    }


class OutcomeSchema(Schema):
    """A job's outcome, in short."""

    verdict = fields.String(allow_none=True, metadata={"description": "null: none, or none yet."})
    latency_ms = fields.Float(allow_none=True, metadata={"description": "`timing.latency_ms`: ms a call."})
    relative_ci = fields.Float(allow_none=True, metadata={"description": "Half its 95 % interval, relative to it."})
    speedup = fields.Nested(IntervalSchema, allow_none=True)
    flag_count = fields.Integer(allow_none=True, metadata={"description": "How many flags the time has."})
    error = fields.String(
        allow_none=True, metadata={"description": "Why the kernel did not pass, or the job has no verdict; one line."}
    )
    next = listed_next_field()


class BatchLineSchema(OutcomeSchema):
    index = fields.Integer(
        required=True, allow_none=True, metadata={"description": "Which of the batch's bodies it was, from 0."}
    )
    job_id = fields.String(required=True)
    name = name_field()
    location = fields.String(required=True)
    state = fields.String(required=True, validate=one_of(State))


class BatchViewSchema(Schema):
    """The stored jobs of a batch, in the order of its bodies."""

    batch_id = fields.String(required=True)
    done = fields.Boolean(required=True, metadata={"description": "Whether all of them have ended."})
    states = fields.Dict(required=True, metadata={"description": "How many are in each state."})
    verdicts = fields.Dict(required=True, metadata={"description": "How many have each verdict."})
    jobs = fields.List(fields.Nested(BatchLineSchema), required=True)


class BatchEntrySchema(OutcomeSchema):
    """The response to one body of a batch: a job's id, after a wait with the outcome, or the problem with the body."""

    index = fields.Integer(required=True)
    job_id = fields.String()
    name = name_field()
    location = fields.String()
    state = fields.String()
    ignored = ignored_field()
    problem = fields.Nested(ProblemSchema)


class BatchResponseSchema(Schema):
    """The response to a batch, in the order of its bodies; after a wait with their outcomes."""

    batch_id = fields.String(required=True, allow_none=True, metadata={"description": "null: nothing was accepted."})
    accepted = fields.Integer(required=True)
    refused = fields.Integer(required=True)
    ignored = ignored_field()
    done = fields.Boolean()
    states = fields.Dict()
    verdicts = fields.Dict()
    jobs = fields.List(fields.Nested(BatchEntrySchema), required=True)
