"""An asynchronous client in a separate thread, for a caller without an event loop or with a busy one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

from kernel_eval_client.async_client import AsyncClient

T = TypeVar("T")


class Background:
    """Runs an event loop from `__enter__` to `__exit__`, which cancels the remaining tasks."""

    def __init__(self, make: Callable[[], AsyncClient]) -> None:
        self._make = make
        self._ready: Future[tuple[AsyncClient, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._run_loop, name="kernel-eval", daemon=True)

    def __enter__(self) -> Background:
        self._thread.start()
        self.client, self._loop, self._stop = self._ready.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the coroutine in the thread; returns its result or raises its exception here."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _run_loop(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)  # Without an event loop, `__enter__` raises this error and stops waiting.

    async def _live(self) -> None:
        stop = asyncio.Event()
        try:
            client = self._make()
        except BaseException as error:
            self._ready.set_exception(error)
            return
        async with client:
            self._ready.set_result((client, asyncio.get_running_loop(), stop))
            await stop.wait()
            # Before the connections close: the remaining tasks would log that as an outage.
            under_way = asyncio.all_tasks() - {asyncio.current_task()}
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
