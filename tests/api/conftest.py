"""The app on a real, empty Redis; no worker, so a job stays queued until a test moves its record."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from apiflask import APIFlask
from flask.testing import FlaskClient
from redis import Redis

from api import create_app
from api.http.context import KEY, AppContext
from tasks.jobs.job_store import JobStore


@pytest.fixture(scope="session")
def app(redis_url: str) -> Iterator[APIFlask]:
    app = create_app()
    yield app
    context: AppContext = app.extensions[KEY]
    context.long_poll.hub.close()


@pytest.fixture
def client(app: APIFlask, redis: Redis) -> Iterator[FlaskClient]:
    with app.test_client() as client:
        yield client


@pytest.fixture
def records(app: APIFlask, redis: Redis) -> JobStore:
    context: AppContext = app.extensions[KEY]
    return context.records
