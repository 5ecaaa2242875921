"""Formats every error response as RFC 9457 problem details, with the original service's error keys."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any

from apiflask import APIFlask, HTTPError
from flask import Response, current_app, request
from kombu.exceptions import OperationalError
from marshmallow import ValidationError
from redis.exceptions import RedisError
from werkzeug.http import HTTP_STATUS_CODES

from api.http.body_memory import NoRoom
from api.http.json_body import BodyLate, MediaTypeError, has_unread_body
from api.http.strict_json import BodyError, Path
from api.pages import next_step
from api.pages.rendering import page
from api.schemas.fields import MISSING, REMOVE, UNKNOWN
from api.schemas.suggestions import question, similar_name
from domain.settings import MIB, settings
from tasks.node.redis_client import WritesRefused

CONTENT_TYPE = "application/problem+json"
RETRY_AFTER_S = 5
PAGES = frozenset({"dashboard", "report", "pages", "jobs.listing", "batches"})
"""Blueprints and endpoints that respond with pages."""
MOST_ERRORS = 100
"""Maximum number of errors listed for one body: a body with a hundred thousand errors would get a response of
megabytes."""
MAYBE_RECORDED = (
    "What was submitted may be recorded all the same; sent again with the same Idempotency-Key it is judged once"
)
_ABOUT_THE_BODY = (400, 408, 413, 503)
_MAX_SUMMARISED = 5
_MESSAGE_CHARS = 600
_STEP_CHARS = 200
_log = logging.getLogger(__name__)


class Kind(Enum):
    """All problems, with the HTTP status and the title of each; `type` is a URN made of the name."""

    INVALID_REQUEST = 400, "The request is not valid"
    KEY_REQUIRED = 401, "An API key is needed"
    SCOPE_MISSING = 403, "The API key does not cover this"
    LOCAL_ONLY = 403, "Only for the service's own machine"
    UNKNOWN_BATCH = 404, "No such batch"
    UNKNOWN_JOB = 404, "No such job"
    UNKNOWN_ARTIFACT = 404, "No such artifact"
    UNSUPPORTED_MEDIA_TYPE = 415, "The body is no JSON"
    IDEMPOTENCY_KEY_REUSED = 422, "The idempotency key was used before"
    NO_SUCH_GPU = 422, "No worker has that GPU"
    BODY_LATE = 408, "The body did not come"
    JOB_CANCELLED = 409, "The job was cancelled"
    JOB_NOT_COMPLETED = 409, "The job has no verdict"
    NOTHING_TO_CONFIRM = 409, "The job has no speed-up"
    REQUEST_GONE = 410, "The request was not kept"
    TOO_MANY_REQUESTS = 429, "Too many requests"
    TOO_MANY_JOBS = 429, "Too many jobs at once"
    KEY_RECORDS_FULL = 429, "This key's jobs fill its share"
    JOB_FAILED = 500, "The service failed to judge the kernel"
    QUEUE_FULL = 503, "The queue is full"
    RECORDS_FULL = 503, "There is no room for more jobs"
    BROKER_UNREACHABLE = 503, "The broker cannot be reached"
    WAITERS_FULL = 503, "Too many clients wait already"
    DRAINING = 503, "The service is being stopped"
    GPU_AWAY = 503, "No worker has that GPU now"
    BODIES_FULL = 503, "Too many large bodies at once"
    KEYS_UNREADABLE = 503, "The API keys cannot be read"

    @property
    def urn(self) -> str:
        return f"urn:kernel-eval:problem:{self.slug}"

    @property
    def slug(self) -> str:
        """The last part of the URN."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True)
class FieldError:
    """One invalid value in a body."""

    path: Path
    message: str

    @property
    def field(self) -> str:
        return " -> ".join(map(str, self.short_path))

    @property
    def type(self) -> str:
        if self.message.startswith(MISSING.partition(";")[0]):
            return "missing"
        return "extra_forbidden" if self.message.startswith(UNKNOWN.removesuffix(REMOVE)) else "value_error"

    @property
    def pointer(self) -> str:
        """The path as a JSON pointer (RFC 6901)."""
        return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in self.short_path)

    @property
    def short_path(self) -> Path:
        return tuple(
            step if isinstance(step, int) or len(step) <= _STEP_CHARS else f"{step[:_STEP_CHARS]}…"
            for step in self.path
        )

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.path else self.message


class Problem(HTTPError):
    """An error response of one of our kinds; `extra` are further members of its body."""

    def __init__(self, kind: Kind, detail: str, headers: Mapping[str, str] | None = None, **extra: Any) -> None:
        status, title = kind.value
        super().__init__(status, title, detail, dict(headers or {}), extra)
        self.kind = kind

    def body(self, instance: str) -> dict[str, Any]:
        return {
            "type": self.kind.urn,
            "title": self.message,
            "status": self.status_code,
            "detail": self.detail,
            "instance": instance,
            "error": self.detail,
            "next": next_step.OF_PROBLEM[self.kind.slug],
            **self.extra_data,
        }


def invalid(errors: Iterable[FieldError], body: Any = None, most: int = MOST_ERRORS) -> Problem:
    """The problem of a body with these errors, of which it lists `most`; `body` is where their values are looked up."""
    remaining = iter(errors)
    errors = list(islice(remaining, most))
    omitted_count = sum(1 for _ in remaining)
    summary = "; ".join(map(str, errors[:_MAX_SUMMARISED]))
    remaining_count = len(errors[_MAX_SUMMARISED:]) + omitted_count
    more = f"; and {remaining_count} more" if remaining_count else ""
    omitted: dict[str, Any] = {"errors_omitted": omitted_count} if omitted_count else {}
    return Problem(
        Kind.INVALID_REQUEST,
        summary + more,
        validation_errors=[{"field": e.field, "message": e.message, "type": e.type} for e in errors],
        details=dict(_offending_values(errors, body)),
        errors=[{"path": list(e.short_path), "pointer": e.pointer, "message": e.message} for e in errors],
        next=next_step.of_fields([".".join(map(str, e.short_path)) for e in errors[:_MAX_SUMMARISED]]),
        **omitted,
    )


def invalid_fields(error: ValidationError, most: int = MOST_ERRORS) -> Problem:
    return invalid(_flatten(error.messages), error.data, most)


def _flatten(messages: Any, path: Path = ()) -> Iterator[FieldError]:
    if isinstance(messages, dict):
        for key, value in messages.items():
            yield from _flatten(value, path if key == "_schema" else (*path, key))
    elif isinstance(messages, list):
        for message in messages:
            yield from _flatten(message, path)
    else:
        yield FieldError(path, str(messages)[:_MESSAGE_CHARS])


def _offending_values(errors: list[FieldError], body: Any) -> Iterator[tuple[str, Any]]:
    """The short values that were at fault, by field."""
    for error in errors:
        value = body
        for step in error.path:
            inside = isinstance(value, dict) or (isinstance(value, list) and isinstance(step, int))
            try:
                value = value[step] if inside else None
            except (KeyError, IndexError):
                value = None
        if isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= _MESSAGE_CHARS):
            yield error.field, value


def respond(error: HTTPError) -> Response:
    """The response to any error; all errors pass through this one hook."""
    if isinstance(error, Problem):
        body = error.body(request.path)
    elif isinstance(error.detail, dict) and error.detail:
        # APIFlask's own validation of query parameters: messages by location, then by name.
        problem = invalid([e for part in error.detail.values() for e in _flatten(part)])
        body = problem.body(request.path)
    else:
        detail = _plain_detail(error)
        body = {
            "type": "about:blank",
            "title": HTTP_STATUS_CODES.get(error.status_code, "Error"),
            "status": error.status_code,
            "detail": detail,
            "instance": request.path,
            "error": detail,
            "next": next_step.OF_STATUS.get(error.status_code, next_step.OF_PROBLEM["invalid-request"]),
        }
    if prefers_page():
        texts: dict[str, Any] = {name: str(body[name]) for name in ("title", "detail", "next")}
        url = shlex.quote(request.base_url)  # A stranger's link may have `;` and `$(…)` in its path.
        response = page("problem.html", error.status_code, **texts, error_status=error.status_code, url=url)
        content_type = response.content_type
    else:
        response = current_app.response_class(current_app.json.dumps(body) + "\n", error.status_code)
        content_type = CONTENT_TYPE
    response.headers.update(error.headers)
    response.content_type = content_type
    if error.status_code in _ABOUT_THE_BODY and has_unread_body(request):
        response.headers["Connection"] = "close"
    return response


def prefers_page() -> bool:
    """Whether the current request is for a page and its client prefers HTML to JSON."""
    unknown_path = request.url_rule is None and request.method == "GET"
    if not unknown_path and PAGES.isdisjoint({request.blueprint, request.endpoint}):
        return False
    offered = ("application/json", CONTENT_TYPE, "text/html")
    return request.accept_mimetypes.best_match(offered) == "text/html"


def _plain_detail(error: HTTPError) -> str:
    match error.status_code:
        case 404:
            return f"there is no {request.path[:200]!r} here; /openapi.json lists all paths{question(_similar_path())}"
        case 405:
            allowed = dict(error.headers).get("Allow")
            return f"{request.method} is not allowed for {request.path[:200]}; allowed: {allowed}"
        case 413:
            return f"the body is larger than {settings().max_body // MIB} MiB; split it, or send tensors compressed"
        case 500:
            return "an error of the service, not of the request; its log has the cause"
    return error.message or "the request could not be served"


_PARTS = ("cancel", "result", "results", "status", "state", "verdict")
"""Parts of a job or a batch that other services have at paths of their own."""


def _similar_path() -> str | None:
    """The path that the current request's path looks like, with the request's own job or batch in it."""
    path = request.path.strip("/")
    rules = (rule.rule for rule in current_app.url_map.iter_rules() if rule.endpoint != "static")
    names = {_filled(rule.strip("/"), path) for rule in rules}
    whole, _, last = path.rpartition("/")
    owner = whole if last in _PARTS else f"job/{last}" if whole in _PARTS else ""
    meant = owner if owner and owner in names else similar_name(path, names) or similar_name(last, names)
    return f"/{meant}" if meant else None


def _filled(rule: str, path: str) -> str:
    """The path of a rule, its parameters taken from the same places of `path`."""
    actual = path.split("/")
    return "/".join(
        actual[index] if part.startswith("<") and index < len(actual) else part
        for index, part in enumerate(rule.split("/"))
    )


def register(app: APIFlask) -> None:
    """Sends every error of `app` through `respond`."""
    app.error_processor(respond)

    @app.errorhandler(ValidationError)
    def _invalid_fields(error: ValidationError) -> Response:
        return respond(invalid_fields(error))

    @app.errorhandler(BodyError)
    def _invalid_body(error: BodyError) -> Response:
        if isinstance(error, MediaTypeError):
            return respond(Problem(Kind.UNSUPPORTED_MEDIA_TYPE, str(error)))
        return respond(invalid([FieldError(error.path, str(error))]))

    @app.errorhandler(BodyLate)
    def _late_body(error: BodyLate) -> Response:
        return respond(Problem(Kind.BODY_LATE, str(error)))

    @app.errorhandler(NoRoom)
    def _no_room(_: NoRoom) -> Response:
        detail = "large bodies that are being read fill the memory reserved for them; send this one again later"
        return respond(Problem(Kind.BODIES_FULL, detail, {"Retry-After": str(RETRY_AFTER_S)}))

    @app.errorhandler(RedisError)
    @app.errorhandler(OperationalError)
    def _no_broker(error: Exception) -> Response:
        _log.error("broker: %s", error)
        wrong = (
            "takes no writes: its memory or disk is full, or it is a replica"
            if isinstance(error, WritesRefused)
            else "does not answer"
        )
        # A silent Redis executes a command later that was sent to it, and a pipeline may be refused in part.
        advice = f". {MAYBE_RECORDED}" if request.method == "POST" else "; try again in a few seconds"
        detail = f"the broker {wrong}{advice}"
        return respond(Problem(Kind.BROKER_UNREACHABLE, detail, {"Retry-After": str(RETRY_AFTER_S)}))
