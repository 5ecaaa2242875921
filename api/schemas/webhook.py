"""A submission's webhook: an address that the service may send to, and a secret."""

from __future__ import annotations

from typing import Any

from marshmallow import ValidationError, validate, validates_schema

from api.schemas.fields import ObjectSchema, Text
from api.url_policy import Forbidden, destination
from domain.settings import settings
from tasks.jobs.webhook_outbox import Webhook

MAX_URL, MIN_SECRET, MAX_SECRET = 2048, 16, 256
_MESSAGES = {"type": 'must be a JSON object with `url`, such as {"url": "https://example.com/done"}'}


class WebhookSchema(ObjectSchema):
    """Receives a POST when the job has ended, signed if there is a secret."""

    error_messages = _MESSAGES

    url = Text(
        required=True,
        validate=validate.Length(1, MAX_URL),
        metadata={"description": "`https`, or `http` for a host that the service lists by name."},
    )
    secret = Text(
        load_default=None,
        allow_none=True,
        validate=validate.Length(MIN_SECRET, MAX_SECRET, error="must have {min} to {max} characters"),
        metadata={
            "description": "Signs the request (`X-Kernel-Eval-Signature`). Stored until delivery, never returned."
        },
    )

    @validates_schema
    def _allowed(self, data: dict[str, Any], **_: Any) -> None:
        try:
            destination(data["url"], settings().webhook_hosts)
        except Forbidden as error:
            raise ValidationError({"url": [str(error)]}) from error


def read_webhook(body: Any) -> Webhook | None:
    """The `webhook` of a submission's body; raises marshmallow.ValidationError with the path of the invalid value."""
    value = body.get("webhook") if isinstance(body, dict) else None
    if value is None:
        return None
    try:
        data = WebhookSchema().load(value)
    except ValidationError as error:
        raise ValidationError({"webhook": error.messages}, data=body) from error
    return Webhook(data["url"], data["secret"])
