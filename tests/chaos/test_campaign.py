"""One fault of every kind under a mixed load, seeded: what `make chaos` does at length."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.campaign import Campaign
from tests.chaos.faults import KINDS, RedisAway
from tests.chaos.service import service


def test_one_fault_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RedisAway, "longest_s", 2.0)
    with service(tmp_path, a=1, b=1) as (made, ledger):
        books = Campaign(made, ledger, jobs=12, faults=1, seed=7).run()
    print(books)
    assert books.trouble == []
    assert books.jobs >= 12
    assert books.longest_away_s == RedisAway.longest_s
    assert dict(books.struck) == {kind.__name__: 1 for kind in KINDS}
