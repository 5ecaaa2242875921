"""A source as a module: what is executed is what a reader sees."""

from __future__ import annotations

from pathlib import Path

from backends.source.module_loader import import_source


def test_a_comment_is_one_whatever_encoding_it_names(tmp_path: Path) -> None:
    hidden = "# -*- coding: raw_unicode_escape -*-\n# \\u000ahidden = 1\nseen = 1\n"
    module = import_source(hidden, tmp_path)
    assert module.seen == 1 and not hasattr(module, "hidden")
