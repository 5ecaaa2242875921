"""One real service for all tests of the client, and both kinds of client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kernel_eval_client import AsyncClient, Client
from tests.stack.serving import READY_S, serve, wait_for


@pytest.fixture(scope="package")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`make serve` on the CPU; stopped with the last of these tests."""
    with serve(tmp_path_factory.mktemp("client"), GPU_DEVICE="cpu", MAX_WORKERS="2") as serving:
        wait_for(serving.ready, READY_S, "it is ready")
        yield serving.url


@pytest.fixture(scope="package")
def gpu_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`make serve` on the GPUs that are there."""
    with serve(tmp_path_factory.mktemp("gpu")) as serving:
        wait_for(serving.ready, READY_S, "it is ready")
        yield serving.url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as opened:
        yield opened


Asked = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Asked:
    """`ask(url, retry, "judge", …)`: that method of a client, synchronous or not, called once."""

    def synchronous(url: str, retry: Any, method: str, *args: Any, **more: Any) -> Any:
        with Client(url, retry=retry) as opened:
            return getattr(opened, method)(*args, **more)

    def asynchronous(url: str, retry: Any, method: str, *args: Any, **more: Any) -> Any:
        async def asked() -> Any:
            async with AsyncClient(url, retry=retry) as opened:
                return await getattr(opened, method)(*args, **more)

        return asyncio.run(asked())

    return synchronous if request.param == "sync" else asynchronous
