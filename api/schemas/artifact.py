"""Schemas of the artifacts of a job."""

from __future__ import annotations

from apiflask import Schema
from marshmallow import fields

from api.schemas.fields import one_of
from domain.listing import PROFILE, Form
from domain.result import CANDIDATE, REFERENCE


class ArtifactSchema(Schema):
    """A stored text or profiler's report of a job, or why it is unavailable."""

    side = fields.String(required=True, validate=one_of((CANDIDATE, REFERENCE)))
    name = fields.String(required=True, allow_none=True, metadata={"description": "null: unavailable."})
    format = fields.String(
        required=True,
        validate=one_of((*Form, PROFILE)),
        metadata={"description": f"`{PROFILE}` is a binary report for Nsight Compute's own window."},
    )
    kernel = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "The kernel or extension. null: it concerns none in particular."},
    )
    variant = fields.String(allow_none=True, metadata={"description": "For a kernel that was compiled several times."})
    bytes = fields.Integer()
    truncated = fields.Boolean(metadata={"description": "Whether it was cut at its maximum length."})
    path = fields.String(metadata={"description": "Its path in the API."})
    unavailable = fields.String(metadata={"description": "Why it is unavailable, and what to do."})


class ArtifactListSchema(Schema):
    """A job's stored artifacts, and those that are unavailable."""

    job_id = fields.String(required=True)
    artifacts = fields.List(fields.Nested(ArtifactSchema), required=True)
