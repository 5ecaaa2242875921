"""Who may: looks at every request before its body is read, and gives the key that asks to whoever answers it."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from apiflask import APIFlask
from flask import current_app, g, request
from redis import Redis

from api.auth.cross_origin import SAME_SITE, address_of, is_loopback, names_this_machine, refuse_pages_of_others
from api.auth.key_file import KeyFile, KeyFileError
from api.http.problems import Kind, Problem, page_wanted
from domain.access import Key, Scope
from domain.settings import OFF, Settings
from tasks.jobs.rate_limit import Rate

EXTENSION = "access"

OPEN = frozenset({"health", "documentation", "openapi"})
"""Blueprints that everybody may ask. An endpoint that is nowhere in these lists is for admin."""

SCOPES = {
    "submissions": Scope.SUBMIT,
    "jobs": Scope.READ,
    "artifacts": Scope.READ,
    "report": Scope.READ,
    "events": Scope.READ,
    "dashboard": Scope.READ,
    "batches": Scope.READ,
    "stats": Scope.READ,
    "metrics": Scope.READ,
}
"""By blueprint."""

EXCEPTIONS = {"jobs.cancel": Scope.SUBMIT, "jobs.cancel_many": Scope.SUBMIT}
"""By endpoint: cancelling is of submitting, not of reading."""

FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Real-IP")
BROWSER = 'Basic realm="an API key as the password", charset="UTF-8", Bearer'

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Access:
    """One per app."""

    settings: Settings
    keys: KeyFile
    rate: Rate

    def wanted(self) -> bool:
        """Whether this request needs a key.

        Where the setting does not say, every request does unless it came to a loopback address. Both the address that
        we were told to listen on and the one that asks must be: a server may be started with another than ours.
        """
        if self.settings.keys_required or self.settings.require_api_keys == OFF:
            return self.settings.keys_required
        return not _is_loopback(request.remote_addr)

    def admit(self) -> None:
        """Lets the current request go on, or raises the Problem that answers it."""
        scope = _scope()
        if not self.wanted():
            refuse_pages_of_others(self.settings)
            if scope is Scope.ADMIN and not _is_local():
                raise Problem(Kind.LOCAL_ONLY, "without API keys this is for programs on the service's own machine")
            return
        key = self._presented(required=scope is not None)
        g.key = key
        if key is None or scope is None:
            return
        if scope not in key.scopes:
            detail = f"this needs the scope {scope}; this key has: {', '.join(sorted(key.scopes)) or 'none'}"
            raise Problem(Kind.SCOPE_MISSING, detail)
        if seconds := self.rate.take(key):
            raise Problem(
                Kind.TOO_MANY_REQUESTS,
                f"this key may make {key.requests_per_minute} requests a minute; try again after Retry-After,"
                " and wait for a job with ?wait=SECONDS instead of asking again and again",
                {"Retry-After": str(math.ceil(seconds))},
            )

    def _presented(self, *, required: bool) -> Key | None:
        """The key in the header; a stranger is None where none is required, and a Problem elsewhere."""
        kind, _, text = request.headers.get("Authorization", "").partition(" ")
        try:
            shown = text.strip() if kind.lower() == "bearer" else self._of_browser()
            key = self.keys.find(shown)
        except KeyFileError as error:
            _log.error("%s", error)
            if required:
                detail = "the service cannot read its keys, so it lets nobody in; its log says why"
                raise Problem(Kind.KEYS_UNREADABLE, detail) from error
            return None
        if key is None and required:
            detail = (
                "the key is not known, or was revoked"
                if shown
                else "an API key is needed: send the header `Authorization: Bearer <key>`"
            )
            raise Problem(Kind.KEY_REQUIRED, detail, {"WWW-Authenticate": BROWSER if page_wanted() else "Bearer"})
        return key

    def _of_browser(self) -> str:
        """The key as a browser sends it, which cannot be told to send a header: the password of HTTP Basic.

        It sends it along with whatever any page has it ask here, so that this opens nothing but reading, and only where
        the page is ours or the person goes there.
        """
        shown = request.authorization
        ours = request.headers.get("Sec-Fetch-Site") in SAME_SITE
        if shown is None or shown.type != "basic" or request.method not in ("GET", "HEAD"):
            return ""
        return shown.password or "" if ours or request.headers.get("Sec-Fetch-Mode") == "navigate" else ""


def open_access(app: APIFlask, settings: Settings, redis: Redis) -> None:
    """Put every request of the app through `Access.admit`."""
    keys = KeyFile(settings.api_keys_file, settings.key_requests_per_minute, settings.key_max_jobs)
    access = Access(settings, keys, Rate(redis))
    app.extensions[EXTENSION] = access
    app.before_request(access.admit)


def caller() -> Key | None:
    """The key that makes the current request; None where none is needed, and for a stranger at an open endpoint."""
    found: Key | None = g.get("key")
    return found


def caller_id() -> str | None:
    """That key's id: whose jobs they are."""
    key = caller()
    return key.key_id if key else None


def keys_wanted() -> bool:
    """Whether the current request needs a key."""
    access: Access = current_app.extensions[EXTENSION]
    return access.wanted()


def stranger() -> bool:
    """Whether a key would be needed here and was not shown."""
    access: Access = current_app.extensions[EXTENSION]
    return caller() is None and access.wanted()


def _scope() -> Scope | None:
    """What the current request needs; None when everybody may ask it. Paths that are not there are nobody's secret."""
    if request.endpoint is None or request.blueprint in OPEN:
        return None
    return EXCEPTIONS.get(request.endpoint) or SCOPES.get(request.blueprint or "", Scope.ADMIN)


def _is_local() -> bool:
    """Whether a program on this machine asks, by itself: no proxy for somebody, no browser for another site's page."""
    return (
        _is_loopback(request.remote_addr)
        and not any(name in request.headers for name in FORWARDED)
        and request.headers.get("Sec-Fetch-Site") in SAME_SITE
        and names_this_machine(request.host)
    )


def _is_loopback(address: str | None) -> bool:
    found = address_of(address or "")
    return found is not None and is_loopback(found)
