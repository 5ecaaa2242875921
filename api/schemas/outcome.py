"""The fields of a kernel's result that every client reads; docs/api.md has the others."""

from __future__ import annotations

from apiflask import Schema
from marshmallow import INCLUDE, fields

from api.schemas.fields import one_of
from domain.result import Lack, Status


class IntervalSchema(Schema):
    """A speed-up: the reference's time over the kernel's, with its 95 % interval."""

    ratio = fields.Float(required=True, allow_none=True)
    ci_low = fields.Float(required=True, allow_none=True)
    ci_high = fields.Float(required=True, allow_none=True, metadata={"description": "null: no upper end."})


class SpeedupSchema(IntervalSchema):
    verdict = fields.String(required=True, validate=one_of(("faster", "slower", "not_distinguishable")))


class SummarySchema(Schema):
    """A completed job in short."""

    class Meta:
        """A later version may say more."""

        unknown = INCLUDE

    verdict = fields.String(required=True, validate=one_of(Status))
    latency_ms = fields.Float(allow_none=True, metadata={"description": "ms a call; null: not timed."})
    relative_ci = fields.Float(allow_none=True, metadata={"description": "Half its 95 % interval, relative to it."})
    ratio = fields.Float(allow_none=True, metadata={"description": "The speed-up; null: none."})
    ci_low = fields.Float(allow_none=True)
    ci_high = fields.Float(allow_none=True, metadata={"description": "null: no upper end, or no speed-up."})
    headroom = fields.Float(allow_none=True, metadata={"description": "The time over the least time of its work."})
    flag_count = fields.Integer(metadata={"description": "How many flags the time has."})
    error = fields.String(allow_none=True, metadata={"description": "First line of why the kernel did not pass."})
    kernel = fields.String(allow_none=True, metadata={"description": "Its entry point."})
    device = fields.String(allow_none=True)
    candidate = fields.String(allow_none=True, metadata={"description": "The kernel's digest."})
    reference = fields.String(allow_none=True, metadata={"description": "The reference's digest."})
    reference_kernel = fields.String(allow_none=True, metadata={"description": "The reference's entry point."})


class KernelResultSchema(Schema):
    class Meta:
        """The parts that depend on the request have no schema."""

        unknown = INCLUDE

    status = fields.String(required=True, validate=one_of(Status))
    compiled = fields.Boolean(required=True)
    worker_lacks = fields.String(
        allow_none=True,
        validate=one_of(Lack),
        metadata={"description": "`unsupported` alone: what its worker lacks; null: the kernel is at fault."},
    )
    correctness = fields.Boolean(
        required=True,
        allow_none=True,
        metadata={"description": "Of /evaluate: whether it ran. null: it could not run on this worker."},
    )
    runtime = fields.Float(required=True, metadata={"description": "Mean time of a call in ms; 0.0: not timed."})
    compilation_error = fields.String(required=True, allow_none=True)
    validation_error = fields.String(required=True, allow_none=True)
    profiling_error = fields.String(required=True, allow_none=True)
    output = fields.String(required=True, metadata={"description": "What it printed."})
    timing = fields.Dict(required=True, allow_none=True)
    comparison = fields.Dict(required=True, allow_none=True)
    metadata = fields.Dict(required=True)
