"""The table of long tests names files and tests that exist."""

from __future__ import annotations

import pytest

from domain.paths import ROOT
from tests.durations import KEPT, LONG, is_long


@pytest.mark.parametrize("path", LONG)
def test_a_long_file_exists(path: str) -> None:
    assert (ROOT / path).is_file()


@pytest.mark.parametrize("beginning", KEPT)
def test_a_kept_test_is_in_a_long_file(beginning: str) -> None:
    path, _, name = beginning.partition("::")
    assert path in LONG
    assert f"def {name.partition('[')[0]}" in (ROOT / path).read_text(encoding="utf-8")
    assert not is_long(beginning)
