"""The terminal of the stack's programs, corpora and benchmarks: it prints untrusted text as plain text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from domain.plain_text import plain_lines


class Terminal(Console):
    """A console without markup, whose only control characters and links are rich's own.

    `columns` is the width if the output is no terminal. Other options are rich's.
    """

    def __init__(self, *, columns: int | None = None, **options: Any) -> None:
        super().__init__(**{"highlight": False, "markup": False, "emoji": False, **options})
        if columns is not None and not self.is_terminal:
            self.width = columns

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Renders everything that is printed, nested renderables included."""
        return map(_cleaned, super().render(renderable, options))


def _cleaned(segment: Segment) -> Segment:
    if segment.control:
        return segment
    style = segment.style.update_link(None) if segment.style and segment.style.link else segment.style
    return Segment(plain_lines(segment.text), style)
