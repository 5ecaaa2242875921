"""docs/errors.md says what the code says."""

from __future__ import annotations

from tests.docs.error_reference import DOCUMENT, text


def test_the_error_reference_is_fresh() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == text(), "run: python -m tests.docs.error_reference"
