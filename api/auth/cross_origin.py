"""Refuses requests that pages of other sites make through a browser, where no API key does.

A page may attack in two ways. It may send a request to this machine's address; it cannot read the response, but the
request runs code. And its own name may be pointed at this machine's address ("DNS rebinding"), so that the browser
takes it for our page.
"""

from __future__ import annotations

import ipaddress
import socket
from functools import cache
from urllib.parse import urlsplit

from flask import request

from api.http.problems import Kind, Problem
from domain.settings import Settings

SAME_SITE = (None, "same-origin", "none")
"""Allowed values of Sec-Fetch-Site: none at all (an old browser or a program), one of our pages, the user."""
ANY = "*"
_READS = ("GET", "HEAD", "OPTIONS")


def refuse_pages_of_others(settings: Settings) -> None:
    """Raises Problem where a page of another site may have made the current request, which needs no key."""
    name = host_name(request.host)
    listed = ANY in settings.allowed_hosts or name in settings.allowed_hosts
    if not listed and not _names_service(name, settings):
        raise Problem(
            Kind.LOCAL_ONLY,
            f"without API keys the service answers under the names of its own machine, and {name[:100]!r} is none; "
            "ask for it by its address, or list the name in ALLOWED_HOSTS",
        )
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if request.method in _READS:
        # A navigation: the user follows a link to one of our pages.
        allowed = site in SAME_SITE or request.headers.get("Sec-Fetch-Mode") == "navigate"
    else:
        allowed = site in SAME_SITE and (origin is None or _is_of(origin, request.host, settings))
    if not allowed:
        raise Problem(
            Kind.LOCAL_ONLY,
            "a page of another site sent this, and without API keys anybody's page could; "
            "send it from a program, or list the page's host in ALLOWED_HOSTS",
        )
    _require_json()


def _require_json() -> None:
    """Requires the JSON media type: a browser asks for permission before it sends that for another site's page."""
    bodily = bool(request.content_length) or "Transfer-Encoding" in request.headers
    if request.method not in _READS and bodily and not request.is_json:
        declared = f"the body is {request.mimetype[:100]}" if request.mimetype else "the body has no media type"
        raise Problem(
            Kind.UNSUPPORTED_MEDIA_TYPE,
            f"{declared}; send a JSON object with Content-Type: application/json "
            "(curl: -H 'Content-Type: application/json')",
        )


def host_name(host: str) -> str:
    """The name in a Host header or an origin: in lower case, without the port and an address's brackets."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name.strip("[]").rstrip(".").lower()


def names_this_machine(host: str) -> bool:
    """Whether it is a name that no page of another site can have."""
    return _is_this_machine(host_name(host))


def _is_this_machine(name: str) -> bool:
    address = address_of(name)
    return name == "localhost" or (address is not None and is_loopback(address))


def address_of(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address that the text spells; None for a name."""
    try:
        return ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return None


def is_loopback(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)


def _names_service(name: str, settings: Settings) -> bool:
    """Whether the name is ours. An address cannot be rebound, so any is ours if we listen on other than loopback
    addresses."""
    if _is_this_machine(name) or name == _machine_name():
        return True
    return address_of(name) is not None and not settings.loopback


@cache
def _machine_name() -> str:
    return socket.gethostname().lower()


def _is_of(origin: str, host: str, settings: Settings) -> bool:
    """Whether the origin is a page of this service, or of a listed host."""
    try:
        sender = urlsplit(origin).netloc.lower()
    except ValueError:
        return False
    return sender == host.lower() or ANY in settings.allowed_hosts or host_name(sender) in settings.allowed_hosts
