"""The terminal: every command prints through it, and it replaces the control characters of untrusted text.

Results, file names and errors contain text from others. Raw, it could move the cursor, hide other text, fill the
clipboard or forge a line. No other module of the command line has a console of rich.
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

from kernel_eval_client.untrusted_text import plain, plain_lines

WIDTH = 400
"""Width in columns without a terminal: a table in a file must be neither wrapped nor truncated."""

Part = str | tuple[str, str]
"""Text, or text and its style."""


class Grid(Table):
    """A table whose cells are one line each, so that none looks like a row of its own."""

    def __init__(self, *titles: str) -> None:
        super().__init__(*titles, box=None, pad_edge=False)

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Adds a row as rich does, except that a string is plain text and never markup."""
        super().add_row(*map(_cell, cells), **options)


class Terminal:
    """Writes to one stream. `width` in columns; default: the terminal's, else 400."""

    def __init__(self, file: TextIO, width: int | None = None) -> None:
        self._console = _Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True, width=width)
        if width is None and not self._console.is_terminal:
            self._console.width = WIDTH

    @property
    def is_terminal(self) -> bool:
        """Whether the stream is a terminal."""
        return self._console.is_terminal

    def say(self, *parts: Part, style: str = "") -> None:
        """Prints the parts on one line, without their line breaks and control characters."""
        texts = [(plain(part), "") if isinstance(part, str) else (plain(part[0]), part[1]) for part in parts]
        self._console.print(Text.assemble(*texts, style=style))

    def block(self, lines: str | Iterable[str], style: str = "", *, indent: str = "    ") -> None:
        """Prints untrusted lines, each indented, so that none looks like a line of this program."""
        for line in lines.splitlines() if isinstance(lines, str) else lines:
            self._console.print(Text(indent + plain_lines(line).replace("\n", " "), style))

    def table(self, grid: Grid) -> None:
        """Prints a table."""
        self._console.print(grid)

    def json(self, value: Any) -> None:
        """Writes one JSON value on one line, in ASCII. DEL is the only control character that json does not escape."""
        self._console.file.write(json.dumps(value).replace("\x7f", "\\u007f") + "\n")
        self._console.file.flush()

    def page(self, html: str) -> None:
        """Writes a page of HTML without control characters. Those that only order text become character references."""
        self._console.file.write("".join(map(_page_text, html.replace("\r\n", "\n"))))

    @contextmanager
    def bar(self, total: int, *, visible: bool = True) -> Iterator[Bar]:
        """A progress bar; it disappears at the end."""
        columns = (
            TextColumn("{task.description}", markup=False),
            *(BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()),
        )
        with Progress(
            *columns,
            console=self._console,
            transient=True,
            disable=not visible,
            # Otherwise rich would send standard output to the stream of the bar.
            redirect_stdout=False,
            redirect_stderr=False,
        ) as progress:
            yield Bar(progress, total)

    @contextmanager
    def waiting(self, message: str) -> Iterator[Waiting]:
        """A spinner with a message; it disappears at the end."""
        with Status(Text(plain(message)), console=self._console) as status:
            yield Waiting(status)


class Bar:
    """A progress bar on the terminal."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("judging", total=total)

    def step(self, message: str) -> None:
        """Counts one more and shows the message."""
        self._progress.update(self._task, advance=1, description=plain(message))


class Waiting:
    """The message next to a spinner."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def update(self, message: str) -> None:
        """Replaces the message."""
        self._status.update(Text(plain(message)))


class _Console(Console):
    """A console that writes no control characters or links, except rich's own for the cursor and for styles."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Cleans every segment: rich calls this for each thing that it prints, and for its parts."""
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


def _page_text(character: str) -> str:
    text = plain_lines(character)
    if text != "\N{REPLACEMENT CHARACTER}" or character == text:
        return text
    return text if ord(character) < 0xA0 or 0xD800 <= ord(character) < 0xE000 else f"&#x{ord(character):x};"
