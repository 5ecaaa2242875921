"""The terminal: all that a command prints for people goes through here, where strangers' control characters end.

Results, names of files and errors hold text that others wrote. Written raw it could move the cursor, hide what follows,
fill the clipboard or forge a line. No other module of the command line has a console of rich.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.status import Status
from rich.table import Table
from rich.text import Text

from kernel_eval_client.quoted import plain, plain_lines

WIDTH = 400
"""Columns where there is no terminal: a table in a file is neither to be folded nor to be cut."""

Part = str | tuple[str, str]
"""Text, or text and its style."""


class Grid(Table):
    """A table whose cells are one line each, so that none looks like a row of its own."""

    def __init__(self, *titles: str) -> None:
        super().__init__(*titles, box=None, pad_edge=False)

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """As rich does it; a string is text, never markup."""
        super().add_row(*map(_cell, cells), **options)


class Terminal:
    """Writes to one stream. `width` in columns; default: the terminal's, else 400."""

    def __init__(self, file: TextIO, width: int | None = None) -> None:
        self._console = _Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True, width=width)
        if width is None and not self._console.is_terminal:
            self._console.width = WIDTH

    @property
    def is_terminal(self) -> bool:
        """Whether a person looks at it."""
        return self._console.is_terminal

    def say(self, *parts: Part, style: str = "") -> None:
        """One line, whatever the parts hold."""
        texts = [(plain(part), "") if isinstance(part, str) else (plain(part[0]), part[1]) for part in parts]
        self._console.print(Text.assemble(*texts, style=style))

    def block(self, lines: str | Iterable[str], style: str = "", *, indent: str = "    ") -> None:
        """Lines of a stranger's text, each indented, so that none looks like one of ours."""
        for line in lines.splitlines() if isinstance(lines, str) else lines:
            self._console.print(Text(indent + plain_lines(line).replace("\n", " "), style))

    def table(self, grid: Grid) -> None:
        """A table."""
        self._console.print(grid)

    def json(self, value: Any) -> None:
        """One JSON value on one line, in ASCII: json leaves no other control character than DEL."""
        self._console.file.write(json.dumps(value).replace("\x7f", "\\u007f") + "\n")
        self._console.file.flush()

    def page(self, html: str) -> None:
        """A page as it came but for control characters; what only orders text is named, and so keeps its effect."""
        self._console.file.write("".join(map(_of_page, html.replace("\r\n", "\n"))))

    @contextmanager
    def bar(self, total: int, *, shown: bool = True) -> Iterator[Bar]:
        """A progress bar, gone in the end."""
        columns = (
            TextColumn("{task.description}", markup=False),
            *(BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()),
        )
        with Progress(
            *columns,
            console=self._console,
            transient=True,
            disable=not shown,
            # Otherwise rich would send standard output to the stream of the bar.
            redirect_stdout=False,
            redirect_stderr=False,
        ) as progress:
            yield Bar(progress, total)

    @contextmanager
    def waiting(self, message: str) -> Iterator[Waiting]:
        """A spinner with a message; it disappears in the end."""
        with Status(Text(plain(message)), console=self._console) as status:
            yield Waiting(status)


class Bar:
    """A progress bar that is shown."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("judging", total=total)

    def advance(self, message: str) -> None:
        """One more is done."""
        self._progress.update(self._task, advance=1, description=plain(message))


class Waiting:
    """A message beside a spinner."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def update(self, message: str) -> None:
        """Shows this instead."""
        self._status.update(Text(plain(message)))


class _Console(Console):
    """Writes no control character and no link but those that rich makes itself, to move the cursor and for styles."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """All that is printed is rendered here, and what it consists of as well."""
        return map(_cleaned, super().render(renderable, options))


def _cleaned(segment: Segment) -> Segment:
    if segment.control:
        return segment
    style = segment.style.update_link(None) if segment.style and segment.style.link else segment.style
    return Segment(plain_lines(segment.text), style)


def _cell(cell: RenderableType | None) -> RenderableType | None:
    if isinstance(cell, str):
        return Text(plain(cell))
    if isinstance(cell, Text):
        return Text(plain(cell.plain), cell.style, no_wrap=cell.no_wrap, overflow=cell.overflow)
    return cell


def _of_page(character: str) -> str:
    shown = plain_lines(character)
    if shown != "\N{REPLACEMENT CHARACTER}" or character == shown:
        return shown
    return shown if ord(character) < 0xA0 or 0xD800 <= ord(character) < 0xE000 else f"&#x{ord(character):x};"
