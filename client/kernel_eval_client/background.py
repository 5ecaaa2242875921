"""An asynchronous client in a thread of its own, for a caller that has no event loop, or one that is busy."""

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
    """Its loop runs from `__enter__` to `__exit__`, which ends whatever is still under way."""

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
        """What the coroutine returns, run there; its exceptions are raised here."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _run_loop(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)  # No event loop could be made: `__enter__` raises it, and waits no longer.

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
            # Before the connections close: what is still under way would take that for an outage, and say so.
            under_way = asyncio.all_tasks() - {asyncio.current_task()}
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
