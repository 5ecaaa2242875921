"""The table of packages that a kernel may import is that of the worker's image, and they can be imported."""

from __future__ import annotations

from tests.docs.packages import HEAD, PAGE, table, with_table


def test_the_page_has_the_table_of_the_image() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.count(HEAD) == 1 and "| `torch` |" in table()
    assert with_table(page) == page, "run python -m tests.docs.packages"
