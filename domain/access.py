"""API keys and their scopes, which say what a client may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """Permission of a key. No scope includes another."""

    SUBMIT = "submit"
    """Submit jobs, read their results, cancel them."""
    READ = "read"
    """Read one's own jobs, and the service's counters."""
    ADMIN = "admin"
    """Use the endpoints under /admin/; opens no jobs."""


@dataclass(frozen=True)
class Key:
    """An API key without its secret. Jobs belong to `key_id`, which is never reused, even for the same name.

    `requests_per_minute` and `max_jobs` (jobs that are not terminal, at one moment) limit the client.
    """

    key_id: str
    name: str
    scopes: frozenset[Scope]
    digest: str
    created_at: float
    requests_per_minute: int
    max_jobs: int
