"""Describes webhooks, the one request that the service itself sends, in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from api.openapi import response_examples
from api.webhook_dispatcher import SIGNATURE
from domain.job import State

NAME = "JobEnded"
_TEXT = {"type": "string"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "How a job ended, in short; the whole is at `job`.",
    "properties": {
        "type": {"type": "string", "enum": [f"job.{state.value}" for state in State if state.terminal]},
        "job_id": _TEXT,
        "operation": {"type": "string", "enum": ["evaluate", "compare"]},
        "state": {"type": "string", "enum": [state.value for state in State if state.terminal]},
        "explanation": {**_TEXT, "description": "What was found, in a sentence."},
        "summary": {
            "anyOf": [{"$ref": "#/components/schemas/Summary"}, {"type": "null"}],
            "description": "As a job has it; null: no verdict.",
        },
        "error": {"type": ["string", "null"], "description": "Why a job failed."},
        "job": {**_TEXT, "description": "The path of the job."},
        "report": {**_TEXT, "description": "The path of the page for a person."},
    },
    "additionalProperties": False,
}
SCHEMA["required"] = list(SCHEMA["properties"])


def webhooks() -> dict[str, Any]:
    signature = {
        **{"name": SIGNATURE, "in": "header", "required": False, "schema": _TEXT},
        "description": "`t=SECONDS,v1=HEX`: HMAC-SHA256 of the seconds, a point and the body, where there is a secret.",
    }
    content = {"schema": {"$ref": f"#/components/schemas/{NAME}"}, "example": response_examples.WEBHOOK}
    operation = {
        "summary": "A job has ended: told to the `webhook` of its submission",
        "operationId": "webhook_job_ended",
        "tags": ["Jobs"],
        "security": [{}],
        "parameters": [signature],
        "requestBody": {"required": True, "content": {"application/json": content}},
        "responses": {
            "2XX": {"description": "Received; it is not sent again"},
            "410": {"description": "Refused for good; after any other status it is sent again for some hours"},
        },
    }
    return {"jobEnded": {"post": operation}}
