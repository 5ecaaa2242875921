"""Extensions in thirty styles: ours compiles what torch's own way compiles, and both answer the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.extensions import toolchain
from benchmarks.builds import SOURCES, compare

NAMES = sorted(path.stem for path in SOURCES.glob("[a-z]*.py"))


@pytest.fixture(scope="module")
def compilers(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = toolchain.prepare(tmp_path_factory.mktemp("toolchains"))
    assert folder is not None
    return str(folder)


def test_there_are_thirty() -> None:
    assert len(NAMES) == 30


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_same_outputs_as_the_stock_build(name: str, compilers: str, tmp_path: Path) -> None:
    pair = compare(name, compilers, tmp_path)
    assert pair.problems == []
    assert pair.same_outputs
