"""Authenticates and authorises every request before its body is read."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from apiflask import APIFlask
from flask import current_app, g, request
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from api.auth.cross_origin import SAME_SITE, address_of, is_loopback, names_this_machine, refuse_pages_of_others
from api.auth.key_file import KeyFile, KeyFileError
from api.http.problems import Kind, Problem, prefers_page
from domain.access import Key, Scope
from domain.settings import OFF, Settings
from tasks.jobs.rate_limit import Rate

EXTENSION = "access"

OPEN = frozenset({"health", "documentation", "openapi"})
"""Blueprints that need no key. An endpoint in none of these lists needs the scope admin."""

SCOPES = {
    "submissions": Scope.SUBMIT,
    "confirm": Scope.SUBMIT,
    "sources": Scope.READ,
    "jobs": Scope.READ,
    "artifacts": Scope.READ,
    "report": Scope.READ,
    "pages": Scope.READ,
    "events": Scope.READ,
    "dashboard": Scope.READ,
    "batches": Scope.READ,
    "stats": Scope.READ,
    "metrics": Scope.READ,
}
"""The scope that each blueprint needs."""

EXCEPTIONS = {"jobs.cancel": Scope.SUBMIT, "jobs.cancel_many": Scope.SUBMIT, "sources.again": Scope.SUBMIT}
"""The scope of single endpoints: to cancel and to repeat belong to submitting, not to reading."""

FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Real-IP")
BROWSER = 'Basic realm="an API key as the password", charset="UTF-8", Bearer'

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Access:
    settings: Settings
    keys: KeyFile
    rate: Rate

    def requires_key(self) -> bool:
        """Whether this request needs a key.

        Without a setting, every request needs one unless it came to a loopback address. Both our configured address and
        the client's must be loopback, because a server may be started on another address than the configured one.
        """
        if self.settings.keys_required or self.settings.require_api_keys == OFF:
            return self.settings.keys_required
        return not _is_loopback(request.remote_addr)

    def admit(self) -> None:
        """Returns if the current request may proceed; raises the Problem to respond with otherwise."""
        scope = _scope()
        if not self.requires_key():
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
        if seconds := self._early(key):
            raise Problem(
                Kind.TOO_MANY_REQUESTS,
                f"this key may make {key.requests_per_minute} requests a minute; try again after Retry-After,"
                " and wait for a job with ?wait=SECONDS instead of asking again and again",
                {"Retry-After": str(math.ceil(seconds))},
            )

    def _early(self, key: Key) -> float:
        """Count the current request: 0 if it is admitted, else the seconds until one of this key will be."""
        try:
            return self.rate.take(key)
        except RedisConnectionError:
            # A Redis that cannot count accepts no job either. While it takes no writes, results stay readable and old
            # jobs can be deleted; while it is away, /metrics says so.
            return 0.0

    def _presented(self, *, required: bool) -> Key | None:
        """The key in the header. Without a valid key: None where none is required, else a Problem."""
        kind, _, text = request.headers.get("Authorization", "").partition(" ")
        try:
            presented = text.strip() if kind.lower() == "bearer" else self._of_browser()
            key = self.keys.find(presented)
        except KeyFileError as error:
            _log.error("%s", error)
            if required:
                detail = "the service cannot read its API keys and admits no request; its log says why"
                raise Problem(Kind.KEYS_UNREADABLE, detail) from error
            return None
        if key is None and required:
            detail = (
                "the key is not known, or was revoked"
                if presented
                else "an API key is needed: send the header `Authorization: Bearer <key>`"
            )
            raise Problem(Kind.KEY_REQUIRED, detail, {"WWW-Authenticate": BROWSER if prefers_page() else "Bearer"})
        return key

    def _of_browser(self) -> str:
        """The key from a browser, which cannot send custom headers: the password of HTTP Basic.

        A browser sends it with any page's request, so it permits only reading, and only for our own pages or a
        navigation.
        """
        credentials = request.authorization
        same_site = request.headers.get("Sec-Fetch-Site") in SAME_SITE
        if credentials is None or credentials.type != "basic" or request.method not in ("GET", "HEAD"):
            return ""
        return credentials.password or "" if same_site or request.headers.get("Sec-Fetch-Mode") == "navigate" else ""


def open_access(app: APIFlask, settings: Settings, redis: Redis) -> None:
    """Passes every request of the app through `Access.admit`."""
    keys = KeyFile(settings.api_keys_file, settings.key_requests_per_minute, settings.key_max_jobs)
    access = Access(settings, keys, Rate(redis))
    app.extensions[EXTENSION] = access
    app.before_request(access.admit)


def caller() -> Key | None:
    """The key of the current request; None where none is needed, and for an anonymous client at an open endpoint."""
    key: Key | None = g.get("key")
    return key


def caller_id() -> str | None:
    """The id of the current request's key, which owns the jobs that it submits."""
    key = caller()
    return key.key_id if key else None


def key_id_of(name: str) -> str:
    """The id of the API key of that name; `name` itself if there is none, as it may be an id."""
    access: Access = current_app.extensions[EXTENSION]
    try:
        return next((key.key_id for key in access.keys.keys().values() if key.name == name), name)
    except KeyFileError as error:
        raise Problem(Kind.KEYS_UNREADABLE, "the service cannot read its API keys; its log says why") from error


def auth_required() -> bool:
    """Whether the current request needs a key."""
    access: Access = current_app.extensions[EXTENSION]
    return access.requires_key()


def is_anonymous() -> bool:
    """Whether the current request would need a key and has none."""
    access: Access = current_app.extensions[EXTENSION]
    return caller() is None and access.requires_key()


def _scope() -> Scope | None:
    """The scope that the current request needs; None for open endpoints and unknown paths."""
    if request.endpoint is None or request.blueprint in OPEN:
        return None
    return EXCEPTIONS.get(request.endpoint) or SCOPES.get(request.blueprint or "", Scope.ADMIN)


def _is_local() -> bool:
    """Whether a program on this machine sent the request directly: no proxy, and no browser for another site's page."""
    return (
        _is_loopback(request.remote_addr)
        and not any(name in request.headers for name in FORWARDED)
        and request.headers.get("Sec-Fetch-Site") in SAME_SITE
        and names_this_machine(request.host)
    )


def _is_loopback(address: str | None) -> bool:
    parsed = address_of(address or "")
    return parsed is not None and is_loopback(parsed)
