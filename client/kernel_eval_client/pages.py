"""A listing of jobs, page by page."""

from __future__ import annotations

from kernel_eval_client.job import Job

PAGE = 1000
"""Maximum jobs in one page of the service."""


class Pages:
    """The state of a listing: the next page to request, until the last page or `limit` jobs."""

    def __init__(self, state: str | None, batch_id: str | None, limit: int | None) -> None:
        filters = {"state": state, "batch_id": batch_id}
        self._params = {name: value for name, value in filters.items() if value is not None}
        self._left = limit
        self.more = limit is None or limit > 0

    def params(self) -> dict[str, str]:
        """The query of the next page."""
        return {**self._params, "limit": f"{PAGE if self._left is None else min(PAGE, self._left)}"}

    def take(self, page: tuple[list[Job], str | None]) -> list[Job]:
        """The jobs of a page, up to the limit."""
        jobs, cursor = page
        if self._left is not None:
            jobs = jobs[: self._left]
            self._left -= len(jobs)
        if cursor is None or self._left == 0:
            self.more = False
        else:
            self._params["cursor"] = cursor
        return jobs
