"""The two documents that a newcomer reads first stay short."""

from __future__ import annotations

import pytest

from domain.paths import ROOT

MAX_WORDS = {"README.md": 800, "docs/architecture.md": 1500}
"""Maximum length by document, in words."""


@pytest.mark.parametrize(("document", "words"), MAX_WORDS.items())
def test_a_document_is_short(document: str, words: int) -> None:
    length = len((ROOT / document).read_text(encoding="utf-8").split())
    assert length <= words, f"{document} has {length} words: move details to the page that it links to"
