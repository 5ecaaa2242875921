"""Vector addition, softmax and a product in each language: compiled in a builder, right and wrong on a card."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backends.extensions.test_jit_build import H200, in_builder
from tests.backends.languages.programs import PROGRAMS, Program
from tests.backends.languages.sources import installed


@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong"])
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_a_builder_compiles_it_for_a_gpu_that_it_does_not_see(program: Program, wrong: bool, tmp_path: Path) -> None:
    installed(program.language)
    facts = in_builder(program.kernel(wrong=wrong), tmp_path, H200).facts
    assert facts["dry_run"]["ended"] == "completed" and facts["dry_run"]["compiled"], facts
    assert program.language in facts["languages"]
