"""`Idempotency-Key`: a submission that is sent twice is one job, because the job's id derives from the key."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from uuid import UUID, uuid4, uuid5

from marshmallow import validate

from api.auth.authentication import caller_id
from api.schemas.fields import LenientSchema, Text

HEADER = "Idempotency-Key"
MAX_CHARS = 255

_NAMES = UUID("6d1c5e0f-4f0e-4c68-9f0b-0d3f4f0c8a52")


class IdempotencySchema(LenientSchema):
    idempotency_key = Text(
        data_key=HEADER,
        validate=validate.Regexp(
            rf"^[\x21-\x7e]{{1,{MAX_CHARS}}}\Z", error=f"must be 1 to {MAX_CHARS} printable ASCII characters, no spaces"
        ),
        metadata={"description": "A name of your choice: sent again with it, the same request is the same job."},
    )


def chosen_id(headers: dict[str, Any], place: str = "") -> str:
    """The id of a job or a batch: derived from the idempotency key, else random.

    The API key is part of the derivation, so that no client meets another's job. `place` distinguishes the ids that
    derive from one idempotency key.
    """
    if (idempotency_key := headers.get("idempotency_key")) is None:
        return str(uuid4())
    return str(uuid5(_NAMES, json.dumps([caller_id() or "", idempotency_key, place])))


def fingerprint(headers: dict[str, Any], bodies: list[Any]) -> str:
    """A digest of a batch's bodies; empty without an idempotency key, since the batch could not be sent again under
    it."""
    if headers.get("idempotency_key") is None:
        return ""
    return hashlib.sha256(json.dumps(bodies, sort_keys=True).encode()).hexdigest()[:32]
