"""Renders templates: everything escaped, style and script inline, and a policy that allows nothing else."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from shlex import quote
from typing import Any

from flask import Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from api.pages import words
from api.pages.cases import elements
from api.pages.sanitizer import error_count
from api.pages.verdict import HEADLINES, tone_of
from domain.plain_text import plain_lines
from domain.result import Status

CONTENT_TYPE = "text/html; charset=utf-8"
STYLE, SCRIPT = "style.css", "copy.js"
ALLOWED = "default-src 'none'; base-uri 'none'; form-action 'self'"

FILTERS = (
    *(words.figure, words.plain, words.duration, words.microseconds, words.count, words.counted),
    *(
        words.share,
        words.size,
        words.name,
        words.reference,
        words.sentence,
        words.flops_per_s,
        elements,
        error_count,
        quote,
    ),
)
"""Functions that templates call by their names."""
REFRESH_S = 3
ON, OFF = "on", "off"
"""Whether a page reloads itself."""


def page(template: str, /, status: int = 200, *, reloads: bool = False, **values: Any) -> Response:
    """The response with that page. `values` may hold untrusted text, which is escaped.

    With `reloads` the browser reloads it every REFRESH_S. By a header: the accessibility rules forbid a page to do so
    by itself.
    """
    environment, inline, policy = _prepared()
    text = environment.get_template(template).render(**inline, policy=policy, **values)
    response = Response(text, status, content_type=CONTENT_TYPE)
    response.headers["Content-Security-Policy"] = f"{policy}; frame-ancestors 'none'"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    if reloads:
        response.headers["Refresh"] = str(REFRESH_S)
    return response


@cache
def _prepared() -> tuple[Environment, dict[str, Markup], str]:
    """The templates, the inline style and script of every page, and the policy that allows exactly these."""
    environment = Environment(
        loader=PackageLoader("api"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_without_control_characters,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {function.__name__: function for function in FILTERS}
    environment.filters |= {"code": _code, "headline": lambda status: HEADLINES[Status(status)]}
    environment.filters |= {"bound": _bound, "at": _at, "tone": lambda status: tone_of(Status(status))}
    inline = {"style": _text(environment, STYLE), "script": _text(environment, SCRIPT)}
    # A hash covers the text between the tags, to the last byte.
    hashes = {name: base64.b64encode(sha256(text.encode()).digest()).decode() for name, text in inline.items()}
    allowed = [ALLOWED, *(f"{name}-src 'sha256-{digest}'" for name, digest in hashes.items())]
    return environment, inline, "; ".join(allowed)


def _text(environment: Environment, name: str) -> Markup:
    return Markup(environment.get_template(name).render())


def _without_control_characters(value: Any) -> Any:
    """The text of a template's expression, without control characters, for a browser or a terminal."""
    return plain_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _code(text: str) -> Markup:
    """The text with what stands between backticks as code."""
    return Markup(re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(_without_control_characters(text)))))


def _bound(speedup: Any) -> str:
    """The sign before a ratio that is the one known end of its interval."""
    low, high = (speedup[end] if isinstance(speedup, dict) else getattr(speedup, end) for end in ("ci_low", "ci_high"))
    return "≥ " if high is None else "≤ " if low == 0 else ""


def _at(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
