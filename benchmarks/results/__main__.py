"""`python -m benchmarks.results`: writes docs/measurements.md from the data files of this folder."""

from __future__ import annotations

from benchmarks.results.page import DOCUMENT, text

if __name__ == "__main__":
    DOCUMENT.write_text(text(), encoding="utf-8")
