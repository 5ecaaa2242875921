"""What every endpoint works with: the job records, the clients that wait, the connection to Redis."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Flask, current_app
from redis import BlockingConnectionPool, Redis

from api.http.limits import WAITERS
from api.http.long_poll import Waiters
from api.webhook_dispatcher import Courier
from domain.settings import settings
from tasks.jobs.job_notifier import JobNotifier
from tasks.jobs.job_store import JobStore
from tasks.jobs.webhook_outbox import Webhooks
from tasks.node.broker_settings import BrokerCheck
from tasks.node.redis_client import connect

KEY = "desk"
CONNECTIONS = 32
CONNECTION_WAIT_S = 5.0
"""A thread that finds all connections taken waits for one: when a job ends, all who wait for it ask at once."""


@dataclass(frozen=True)
class Desk:
    """One per process; every part is safe to share between threads."""

    redis: Redis
    records: JobStore
    waiters: Waiters
    webhooks: Webhooks
    courier: Courier
    broker: BrokerCheck


def open_desk(app: Flask, waiters: int = WAITERS) -> Desk:
    """Give the app its desk; connects to nothing yet."""
    redis = _pooled(connect())
    records = JobStore(redis, settings().job_ttl)
    opened = Desk(
        redis,
        records,
        Waiters(records, JobNotifier(redis, waiters)),
        Webhooks(redis),
        Courier(redis, records),
        BrokerCheck(redis),
    )
    app.extensions[KEY] = opened
    return opened


def _pooled(client: Redis) -> Redis:
    """The same client, on a pool that makes threads wait; the stock one refuses the 101st connection."""
    stock = client.connection_pool
    pool = BlockingConnectionPool(  # type: ignore[no-untyped-call]
        max_connections=CONNECTIONS,
        timeout=CONNECTION_WAIT_S,
        connection_class=stock.connection_class,
        **stock.connection_kwargs,
    )
    return Redis.from_pool(pool)


def desk() -> Desk:
    """The desk of the app that serves the current request."""
    found: Desk = current_app.extensions[KEY]
    return found
