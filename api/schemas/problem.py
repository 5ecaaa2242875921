"""An error response in the OpenAPI document: RFC 9457 problem details and the original's keys."""

from __future__ import annotations

from apiflask import Schema
from marshmallow import fields


class ValidationErrorSchema(Schema):
    """One field at fault, in the original's form."""

    field = fields.String(required=True, metadata={"description": "The path, joined by ` -> `."})
    message = fields.String(required=True)
    type = fields.String(required=True)


class FieldErrorSchema(Schema):
    path = fields.List(fields.Raw(metadata={"type": ["string", "integer"]}), required=True)
    pointer = fields.String(required=True, metadata={"description": "RFC 6901, into the body."})
    message = fields.String(required=True)


class ProblemSchema(Schema):
    """The problem and what to do about it; `error` repeats `detail` for clients of the original."""

    type = fields.String(required=True)
    title = fields.String(required=True)
    status = fields.Integer(required=True)
    detail = fields.String(required=True)
    instance = fields.String(required=True)
    error = fields.String(required=True)
    next = fields.String(required=True, metadata={"description": "What to do, in a sentence."})
    details = fields.Dict(metadata={"description": "The values at fault, by field."})
    validation_errors = fields.List(fields.Nested(ValidationErrorSchema))
    errors = fields.List(fields.Nested(FieldErrorSchema))
    errors_omitted = fields.Integer(metadata={"description": "How many more there are; of a body 100 are told."})
    job_id = fields.String()
    batch_id = fields.String()
