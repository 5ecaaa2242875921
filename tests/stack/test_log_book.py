"""Where lines go: the process's own file, the file of all, the console."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from stack.log_book import LogBook


def test_lines_reach_their_files_and_the_console(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=40)
    book = LogBook(tmp_path / "logs", console)
    book.line("api", "[bold]listening[/bold] " + "x" * 60)
    book.line("redis", "chatter", quiet=True)
    book.close()
    assert (tmp_path / "logs/api.log").read_text() == "[bold]listening[/bold] " + "x" * 60 + "\n"
    assert (tmp_path / "logs/cuda_eval_server.log").read_text().startswith("api    | [bold]listening")
    assert (tmp_path / "logs/redis.log").read_text() == "chatter\n"
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == ["api    [bold]listening[/bold] " + "x" * 60]


def test_the_last_lines_are_kept_for_the_message_about_a_death(tmp_path: Path) -> None:
    book = LogBook(tmp_path, None)
    for number in range(30):
        book.line("api", str(number))
    assert book.last_lines("api").split() == [str(number) for number in range(10, 30)]
    assert book.last_lines("nobody") == ""
    book.close()
