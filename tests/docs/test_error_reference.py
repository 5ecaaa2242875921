"""docs/errors.md says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from domain.flags.codes import CUT_SHORT, TIMEOUT_NEAR, FlagCode
from domain.flags.flag import Flag
from tests.docs.error_reference import DOCUMENT, text

ROOT = Path(__file__).resolve().parents[2]
MAXIMUM_WORDS = 25
"""Maximum length of a sentence, in words (CONTRIBUTING.md)."""


def test_the_error_reference_is_fresh() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == text(), "run: python -m tests.docs.error_reference"


@pytest.mark.parametrize("code", FlagCode)
def test_a_code_is_snake_case_and_says_what_it_means_and_what_to_do(code: FlagCode) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)+|interpreted", code) and code == code.name.lower()
    for sentences in (code.meaning, code.advice):
        assert re.fullmatch(r"[A-Z`].*\.", sentences) and "|" not in sentences
        assert all(len(sentence.split()) <= MAXIMUM_WORDS for sentence in sentences.split(". "))


def test_every_code_is_raised_somewhere() -> None:
    packages = ("api", "profiling", "tasks", "validation")
    sources = "\n".join(path.read_text(encoding="utf-8") for name in packages for path in (ROOT / name).rglob("*.py"))
    raised = set(re.findall(r"FlagCode\.([A-Z0-9_]+)", sources))
    assert raised == {code.name for code in FlagCode}


def test_every_flag_that_tells_of_the_timeout_has_a_code_of_what_it_cut_short() -> None:
    """Else `tasks.jobs.result_reuse` would give a result that was cut short to who allows more time."""
    for code in FlagCode:
        assert (TIMEOUT_NEAR in code.meaning) <= (code in CUT_SHORT), code


def test_a_flag_is_read_as_it_was_stored() -> None:
    flag = Flag(FlagCode.UPPER_BOUND, "too short", {"call_ms": 0.5})
    assert Flag.from_dict({"code": "upper_bound", "message": "too short", "data": {"call_ms": 0.5}}) == flag
    assert hash(flag) == hash(Flag(FlagCode.UPPER_BOUND, "too short", {}))
    with pytest.raises(ValueError, match="odd"):
        Flag.from_dict({"code": "odd", "message": "", "data": {}})
