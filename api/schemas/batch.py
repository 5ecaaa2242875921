"""A batch as the API shows it: its jobs counted, and a line for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from apiflask import Schema
from marshmallow import fields

from api.schemas.fields import one_of
from api.schemas.job import ignored_field, location, summary
from domain.job import State
from tasks.jobs.job_view import JobView


def progress(views: Sequence[JobView]) -> dict[str, Any]:
    """How far these jobs are."""
    return {
        "done": all(view.state.terminal for view in views),
        "states": dict(Counter(view.state.value for view in views)),
        "verdicts": dict(Counter(view.summary["verdict"] for view in views if view.summary)),
    }


def line(view: JobView) -> dict[str, Any]:
    """What became of one job, in short."""
    found = view.summary or {}
    measured = found.get("ratio") is not None
    return {
        "index": view.batch_index,
        "job_id": view.job_id,
        "location": location(view.job_id),
        "state": view.state.value,
        "verdict": found.get("verdict"),
        "latency_ms": found.get("latency_ms"),
        "relative_ci": found.get("relative_ci"),
        "speedup": {name: found[name] for name in ("ratio", "ci_low", "ci_high")} if measured else None,
        "flags": found.get("flags"),
        "error": found.get("error") or summary(view)["error"],
    }


class FoundSchema(Schema):
    """What was found of a job, in short."""

    verdict = fields.String(allow_none=True, metadata={"description": "null: none, or none yet."})
    latency_ms = fields.Float(allow_none=True, metadata={"description": "`timing.latency_ms`: ms a call."})
    relative_ci = fields.Float(allow_none=True, metadata={"description": "Half its 95 % interval, relative to it."})
    speedup = fields.Dict(allow_none=True, metadata={"description": "`ratio`, `ci_low` and `ci_high`."})
    flags = fields.Integer(allow_none=True, metadata={"description": "How many sentences qualify the time."})
    error = fields.String(
        allow_none=True, metadata={"description": "Why the kernel did not pass, or the job has no verdict; one line."}
    )


class BatchLineSchema(FoundSchema):
    """A job of a batch."""

    index = fields.Integer(
        required=True, allow_none=True, metadata={"description": "Which of the batch's bodies it was, from 0."}
    )
    job_id = fields.String(required=True)
    location = fields.String(required=True)
    state = fields.String(required=True, validate=one_of(State))


class BatchViewSchema(Schema):
    """The jobs of a batch that are kept, in the order of its bodies."""

    batch_id = fields.String(required=True)
    done = fields.Boolean(required=True, metadata={"description": "Whether all of them have ended."})
    states = fields.Dict(required=True, metadata={"description": "How many are in each state."})
    verdicts = fields.Dict(required=True, metadata={"description": "How many have each verdict."})
    jobs = fields.List(fields.Nested(BatchLineSchema), required=True)


class BatchEntrySchema(FoundSchema):
    """The answer to one body of a batch: a job's id, after a wait with what was found, or the problem with the body."""

    index = fields.Integer(required=True)
    job_id = fields.String()
    location = fields.String()
    state = fields.String()
    ignored = ignored_field()
    problem = fields.Dict()


class BatchResponseSchema(Schema):
    """The answer to a batch, in the order of its bodies; after a wait with what became of them."""

    batch_id = fields.String(required=True, allow_none=True, metadata={"description": "null: nothing was accepted."})
    accepted = fields.Integer(required=True)
    refused = fields.Integer(required=True)
    ignored = ignored_field()
    done = fields.Boolean()
    states = fields.Dict()
    verdicts = fields.Dict()
    jobs = fields.List(fields.Nested(BatchEntrySchema), required=True)
