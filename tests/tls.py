"""TLS in front of a server that has none (the embedded one's binary is built without), with a certificate made here."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

PIECE = 65_536


@dataclass(frozen=True)
class Front:
    """Where TLS is spoken, and the file with the certificate that clients have to trust."""

    port: int
    certificate: Path
    key: Path


@contextmanager
def tls_front(folder: Path, port: int, *, known_clients: bool = False) -> Iterator[Front]:
    """TLS on a port of its own, passed on to that port of the loopback interface as plain bytes.

    `known_clients` have to show the same certificate, whose key is beside it.
    """
    certificate, key = _certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if known_clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificate)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_pass_on(reader, inner_writer), _pass_on(inner_reader, writer))

    start = asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    server = asyncio.run_coroutine_threadsafe(start, loop).result(10)
    try:
        yield Front(server.sockets[0].getsockname()[1], certificate, key)
    finally:
        asyncio.run_coroutine_threadsafe(_close(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(PIECE):
            sink.write(data)
            await sink.drain()
    except (OSError, ssl.SSLError):
        pass  # Whichever side went away, the other is told by the end of its own.
    finally:
        sink.close()


async def _close(server: asyncio.Server) -> None:
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _certificate(folder: Path) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key
