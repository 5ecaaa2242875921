"""Decides which addresses the service may send to at a client's request, and connects to these only.

A host that the operator lists is trusted, whatever its address. Under `*` any other host with public addresses is
allowed. The service checks all addresses and connects to one of them, so DNS rebinding has no effect.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

ANY = "*"
PORTS = {"https": 443, "http": 80}
ALLOCATED = ipaddress.ip_network("2000::/3")
"""The IPv6 addresses that are assigned to networks (RFC 4291). Others are local, or stand for an IPv4 address."""

SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        (
            "192.0.0.0/24",  # Protocol assignments (RFC 6890); a cloud's metadata service is at 192.0.0.192.
            "192.88.99.0/24",  # Relays from IPv6 (RFC 7526).
            "168.63.129.16/32",  # A cloud's host, as its virtual machines see it.
            "2001::/23",  # Protocol assignments (RFC 2928): Teredo, benchmarks, ORCHID.
            "2001:db8::/32",  # Documentation (RFC 3849), as is 3fff::/20 (RFC 9637).
            "2002::/16",  # 6to4 (RFC 3056): an IPv4 address within.
            "3fff::/20",
        ),
    )
)
"""Addresses refused in addition to those that Python calls not global: its list differs between versions and has
gaps."""


class Forbidden(Exception):
    """The service does not send there; the message says why, and what to do."""


@dataclass(frozen=True)
class Destination:
    """The parts of a URL. `listed`: the operator lists the host, so its address is not checked."""

    scheme: str
    host: str
    port: int
    path: str
    listed: bool


def destination(url: str, allowed: Sequence[str]) -> Destination:
    """The URL's parts; raises Forbidden where sending there is not allowed. Makes no DNS query."""
    if any(ord(letter) <= ord(" ") or ord(letter) > ord("~") for letter in url):
        raise Forbidden("must be printable ASCII without spaces")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Forbidden(f"is no URL: {error}") from error
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme not in PORTS or not host or parts.username is not None or parts.fragment:
        raise Forbidden("must be an https URL, without a user, a password or a fragment")
    port = port or PORTS[parts.scheme]
    listed = host in allowed or f"{host}:{port}" in allowed
    if not listed and ANY not in allowed:
        raise Forbidden(
            f"the service sends nothing to {host}; its operator lists the hosts that it may ask in WEBHOOK_HOSTS"
        )
    if parts.scheme != "https" and not listed:
        raise Forbidden("must be https: only hosts that are listed in WEBHOOK_HOSTS may be asked without")
    if not listed:
        _refuse_literal(host)
    path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    return Destination(parts.scheme, host, port, path, listed)


def connect(to: Destination, timeout_s: float) -> http.client.HTTPConnection:
    """An open connection. Raises OSError, or Forbidden where the name resolves to a private address."""
    addresses = [str(entry[4][0]) for entry in socket.getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM)]
    private = [address for address in addresses if not _public(address)]
    if private and not to.listed:
        raise Forbidden(f"{to.host} leads to an address that is not public; list it in WEBHOOK_HOSTS to allow that")
    connection = http.client.HTTPConnection(to.host, to.port, timeout=timeout_s)
    opened = socket.create_connection((addresses[0], to.port), timeout=timeout_s)
    if to.scheme == "https":
        try:
            opened = ssl.create_default_context().wrap_socket(opened, server_hostname=to.host)
        except (OSError, ValueError):
            opened.close()
            raise
    # An open socket keeps http.client from resolving the name again.
    connection.sock = opened
    return connection


def _refuse_literal(host: str) -> None:
    try:
        private = not _public(host)
    except ValueError:
        return  # A name: `connect` checks what it resolves to.
    if private:
        raise Forbidden("must lead to a public address; list the host in WEBHOOK_HOSTS to allow another")


def _public(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if any(parsed in network for network in SPECIAL) or (parsed.version == 6 and parsed not in ALLOCATED):
        return False
    return parsed.is_global and not parsed.is_multicast
