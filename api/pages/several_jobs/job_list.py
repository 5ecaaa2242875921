"""The list of jobs: a form of filters, a row for each job, and links to older ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from api.pages.several_jobs.rows import rows
from api.pages.verdict import HEADLINES
from domain.job import State
from domain.kernel import KernelType
from tasks.jobs.job_search import Found


def template_values(result: Found, query: Mapping[str, Any], now: float) -> dict[str, Any]:
    """The values of the template `jobs.html`; `query` holds the filters as the client sent them."""
    filters = {name: value for name, value in query.items() if name not in ("cursor", "refresh", "limit")}
    page = filters | {name: query[name] for name in ("limit",) if name in query}
    older = page | {"cursor": f"{result.cursor:.6f}"} if result.cursor is not None else None
    return {
        "rows": rows(result.views, now),
        "searched": result.searched,
        "filters": filters,
        "selects": [
            ("verdict", "Verdict", [(status.value, word) for status, word in HEADLINES.items()]),
            ("state", "State", [(state.value, state.value.capitalize()) for state in State]),
            ("kernel_type", "Type", [(kind.value, kind.value) for kind in KernelType]),
        ],
        "older": older and f"/jobs?{urlencode(older)}",
        "newest": f"/jobs?{urlencode(page)}" if "cursor" in query else None,
        "following": f"/jobs?{urlencode(page | {'refresh': 'on'})}",
        "still": f"/jobs?{urlencode(page)}",
        "refreshes": query.get("refresh") == "on",
        "now": now,
    }
