"""Who may ask for what: an API key as the service knows it, and the scopes that it can have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What a key opens. None contains another."""

    SUBMIT = "submit"
    """Hand in jobs, be answered for them, cancel them."""
    READ = "read"
    """Read one's own jobs, and the service's counters."""
    ADMIN = "admin"
    """The endpoints under /admin/; nobody's jobs."""


@dataclass(frozen=True)
class Key:
    """A key without its secret. `key_id` is what jobs belong to: never given again, also not to a key of that name.

    `requests_per_minute` and `max_jobs` (jobs that are not terminal, at one moment) bound what it may ask for.
    """

    key_id: str
    name: str
    scopes: frozenset[Scope]
    digest: str
    created_at: float
    requests_per_minute: int
    max_jobs: int
