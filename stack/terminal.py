"""The terminal of the stack's programs, of the corpora and of the benchmarks: strangers' text goes through as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from domain.plain_text import plain_lines


class Terminal(Console):
    """A console without markup, that writes no control character and no link but those that rich makes itself.

    `columns` is the width where the output is no terminal. Its other options are rich's.
    """

    def __init__(self, *, columns: int | None = None, **options: Any) -> None:
        super().__init__(**{"highlight": False, "markup": False, "emoji": False, **options})
        if columns is not None and not self.is_terminal:
            self.width = columns

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """All that is printed is rendered here, and what it consists of as well."""
        return map(_cleaned, super().render(renderable, options))


def _cleaned(segment: Segment) -> Segment:
    if segment.control:
        return segment
    style = segment.style.update_link(None) if segment.style and segment.style.link else segment.style
    return Segment(plain_lines(segment.text), style)
