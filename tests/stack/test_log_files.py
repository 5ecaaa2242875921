"""Where lines go: the process's own file, the file of all, the console."""

from __future__ import annotations

import io
import json
from pathlib import Path

from domain.settings import JSON
from stack.log_files import LogBook
from stack.terminal import Terminal


def test_lines_reach_their_files_and_the_console(tmp_path: Path) -> None:
    console = Terminal(file=io.StringIO(), width=40)
    book = LogBook(tmp_path / "logs", console)
    book.line("api", "[bold]listening[/bold] " + "x" * 60)
    book.line("redis", "chatter", quiet=True)
    book.close()
    assert (tmp_path / "logs/api.log").read_text() == "[bold]listening[/bold] " + "x" * 60 + "\n"
    assert (tmp_path / "logs/cuda_eval_server.log").read_text().startswith("api    | [bold]listening")
    assert (tmp_path / "logs/redis.log").read_text() == "chatter\n"
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == ["api    [bold]listening[/bold] " + "x" * 60]


def test_the_files_have_json_and_the_console_has_not(tmp_path: Path) -> None:
    console = Terminal(file=io.StringIO(), width=200)
    book = LogBook(tmp_path, console, JSON)
    ours = {"at": "2026-11-22T10:11:12.123+00:00", "level": "ERROR", "message": "job 1: lost", "job_id": "1"}
    book.line("cpu0", json.dumps({**ours, "exception": "Traceback\nKeyError"}))
    book.line("redis", '{"half": ')
    book.line("redis", '["no object"]')
    book.line("redis", '{"message": 3}')
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        *("cpu0   10:11:12 ERROR   job 1: lost", "    Traceback", "    KeyError"),
        *('redis  {"half": ', 'redis  ["no object"]', 'redis  {"message": 3}'),
    ]
    assert book.last_lines("cpu0").endswith("KeyError")
    book.close()
    (line,) = (tmp_path / "cpu0.log").read_text().splitlines()
    assert json.loads(line) == {"process": "cpu0", **ours, "exception": "Traceback\nKeyError"}
    together = [json.loads(line) for line in (tmp_path / "cuda_eval_server.log").read_text().splitlines()]
    assert [line["message"] for line in together[1:]] == ['{"half": ', '["no object"]', '{"message": 3}']
    assert {line["process"] for line in together[1:]} == {"redis"}


def test_the_last_lines_are_kept_for_the_message_about_a_death(tmp_path: Path) -> None:
    book = LogBook(tmp_path, None)
    for number in range(30):
        book.line("api", str(number))
    assert book.last_lines("api").split() == [str(number) for number in range(10, 30)]
    assert book.last_lines("nobody") == ""
    book.close()
