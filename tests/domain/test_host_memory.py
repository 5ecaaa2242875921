"""The host memory that a submission's process may take by default."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from domain.host_memory import LEAST_RUNNER_MEMORY, machine_memory, runner_memory_share
from domain.settings import MIB, settings

GIB = 1 << 30
PHYSICAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("jobs", "memory", "share"),
    [(4, 128 * GIB, 16 * GIB), (32, 2048 * GIB, 32 * GIB), (1, 16 * GIB, 8 * GIB), (4, 16 * GIB, LEAST_RUNNER_MEMORY)],
)
def test_the_machine_is_shared_by_the_runners_that_may_live_at_once(jobs: int, memory: int, share: int) -> None:
    assert runner_memory_share(jobs, memory) == share


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "1000\n"}, 1000),
        ("0::/a/b\n", {"a/b/memory.max": "700\n", "a/memory.max": "1000\n"}, 700),
        ("0::/gone\n", {"memory.max": "900\n"}, 900),
        ("3:cpu:/x\n2:memory:/y\n", {"memory/y/memory.limit_in_bytes": "800\n", "memory.max": "1\n"}, 800),
        ("0::/\n", {}, PHYSICAL),
        ("0::/\n", {"memory.max": f"{PHYSICAL * 2}\n"}, PHYSICAL),
    ],
)
def test_a_lower_limit_of_the_control_group_counts(own: str, files: dict[str, str], limit: int, tmp_path: Path) -> None:
    groups, listing = tmp_path / "groups", tmp_path / "own"
    listing.write_text(own)
    for name, text in files.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(text)
    assert machine_memory(groups, listing) == limit
    assert machine_memory(groups, tmp_path / "missing") == PHYSICAL


@pytest.mark.parametrize(("given", "jobs"), [(None, 4), ("", 4)])
def test_the_settings_default_is_a_share(given: str | None, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAX_WORKERS", raising=False)
    monkeypatch.delenv("RUNNER_MEMORY_MIB", raising=False)
    if given is not None:
        monkeypatch.setenv("RUNNER_MEMORY_MIB", given)
    settings.cache_clear()
    assert settings().runner_memory == runner_memory_share(jobs) // MIB * MIB
    monkeypatch.setenv("RUNNER_MEMORY_MIB", "123")
    settings.cache_clear()
    assert settings().runner_memory == 123 * MIB
    settings.cache_clear()
