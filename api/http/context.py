"""The objects that every endpoint uses: the job records, long polling, and the connection to Redis."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Flask, current_app
from redis import BlockingConnectionPool, Redis

from api.http.limits import WAITERS
from api.http.long_poll import LongPoll
from api.webhook_dispatcher import Dispatcher
from domain.settings import settings
from tasks.jobs.job_notifier import JobNotifier
from tasks.jobs.job_store import JobStore
from tasks.node.broker_settings import BrokerCheck
from tasks.node.redis_client import connect

KEY = "app_context"
CONNECTIONS = 32
"""Maximum connections to Redis of one process."""
CONNECTION_WAIT_S = 5.0
"""Maximum time that a thread waits for a free connection, in s: when a job ends, all its waiting clients query at
once."""


@dataclass(frozen=True)
class AppContext:
    """The shared objects of one process; all of them are thread-safe."""

    redis: Redis
    records: JobStore
    long_poll: LongPoll
    dispatcher: Dispatcher
    broker: BrokerCheck


def create_context(app: Flask, long_poll: int = WAITERS) -> AppContext:
    """Creates the app's context; does not connect yet."""
    redis = _pooled(connect())
    records = JobStore(redis, settings().job_ttl)
    context = AppContext(
        redis,
        records,
        LongPoll(records, JobNotifier(redis, long_poll)),
        Dispatcher(redis, records),
        BrokerCheck(redis),
    )
    app.extensions[KEY] = context
    return context


def _pooled(client: Redis) -> Redis:
    """The same client on a pool that makes threads wait; redis-py's default pool refuses the 101st connection."""
    stock = client.connection_pool
    pool = BlockingConnectionPool(  # type: ignore[no-untyped-call]
        max_connections=CONNECTIONS,
        timeout=CONNECTION_WAIT_S,
        connection_class=stock.connection_class,
        **stock.connection_kwargs,
    )
    return Redis.from_pool(pool)


def app_context() -> AppContext:
    context: AppContext = current_app.extensions[KEY]
    return context
