"""A minimal HTTP/1.1 connection: hundreds of a client library's would cost more than the service under test."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Answer:
    """The status, the headers (lower-case names) and the JSON body."""

    status: int
    headers: dict[str, str]
    body: Any


class Connection:
    """A persistent connection for one request at a time."""

    def __init__(self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._host = host
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, url: str) -> Self:
        parts = urlsplit(url)
        return cls(parts.netloc, *await asyncio.open_connection(parts.hostname, parts.port))

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """Sends a request. Raises OSError or asyncio.IncompleteReadError if the service ends."""
        sent = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(sent)}\r\n\r\n".encode() + sent)
        await self._writer.drain()
        status, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        got = await self._reader.readexactly(int(headers["content-length"]))
        return Answer(int(status.split()[1]), headers, json.loads(got))

    def close(self) -> None:
        self._writer.close()
