"""This process's publishing, pointed elsewhere for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kombu import pools

from tasks.app import app


@contextmanager
def published_to(url: str) -> Iterator[None]:
    """This process publishes to that broker inside the block, and to its own again afterwards."""
    before = app.conf.broker_url
    _forget_connections()
    app.conf.broker_url = app.conf.broker_write_url = url
    try:
        yield
    finally:
        _forget_connections()
        app.conf.broker_url = app.conf.broker_write_url = before


def _forget_connections() -> None:
    """A closed pool stays closed, and kombu keeps it by its URL: the next publication is to make another."""
    pools.reset()
    app._pool = None
    app.amqp._producer_pool = None
