"""What is kept beside a job's result, as the API lists it."""

from __future__ import annotations

from apiflask import Schema
from marshmallow import fields

from api.schemas.fields import one_of
from domain.listing import PROFILE, Form
from domain.result import CANDIDATE, REFERENCE


class ArtifactSchema(Schema):
    """A text or a profiler's report that is kept beside a job's result, or why there is none."""

    side = fields.String(required=True, validate=one_of((CANDIDATE, REFERENCE)))
    name = fields.String(required=True, allow_none=True, metadata={"description": "null: unavailable."})
    format = fields.String(
        required=True,
        validate=one_of((*Form, PROFILE)),
        metadata={"description": f"`{PROFILE}` is a report of Nsight Compute, which its own window opens; no text."},
    )
    kernel = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "Or an extension. null: of nothing in particular."},
    )
    variant = fields.String(allow_none=True, metadata={"description": "Of a kernel that was compiled several times."})
    bytes = fields.Integer()
    truncated = fields.Boolean(metadata={"description": "Whether its end was left out."})
    path = fields.String(metadata={"description": "Where it is read."})
    unavailable = fields.String(metadata={"description": "Why it cannot be had, and what to do."})


class ArtifactListSchema(Schema):
    """What is kept beside a job's result, and what of it cannot be had."""

    job_id = fields.String(required=True)
    artifacts = fields.List(fields.Nested(ArtifactSchema), required=True)
