"""An app that wants API keys, and clients that show theirs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from apiflask import APIFlask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from api import create_app
from api.auth.authentication import EXTENSION, Access
from api.auth.key_file import KeyFile
from api.http.context import KEY, AppContext
from domain.access import Scope
from domain.settings import settings

ELSEWHERE = {"REMOTE_ADDR": "192.0.2.7"}


@contextmanager
def app_with(**variables: str) -> Iterator[APIFlask]:
    """An app under settings of its own; the ones of this process stay."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        settings.cache_clear()
        app = create_app()
    settings.cache_clear()
    context: AppContext = app.extensions[KEY]
    try:
        yield app
    finally:
        context.long_poll.hub.close()


@dataclass(frozen=True)
class Holder:
    """Somebody with a key."""

    client: FlaskClient
    secret: str

    def __call__(self, method: str, path: str, **more: Any) -> TestResponse:
        return self.client.open(path, method=method, headers={"Authorization": f"Bearer {self.secret}"}, **more)

    @property
    def key_id(self) -> str:
        return self.secret.split("_")[1]


def file_of(app: APIFlask) -> KeyFile:
    access: Access = app.extensions[EXTENSION]
    return access.keys


def holder(app: APIFlask, name: str, *scopes: Scope, **limits: int) -> Holder:
    return Holder(app.test_client(), file_of(app).add(name, scopes, limits))
