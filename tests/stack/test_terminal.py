"""Nothing that came from a submission reaches a terminal of the server's as a command, by its programs or its logs."""

from __future__ import annotations

import ast
import io
import json
import logging
import sys
from pathlib import Path

import pytest

from domain.job import State
from domain.paths import ROOT
from domain.plain_text import one_entry, plain, plain_lines
from domain.result import Status
from domain.settings import CONSOLE, JSON
from kernel_eval_client import untrusted_text
from stack import demo_report
from stack.example import every_example
from stack.example_run import Trial
from stack.log_files import LogBook
from stack.terminal import Terminal
from stack.workers import ContainerLog
from tasks.node.log_config import formatter
from tests.client.hostile import HOSTILE, MARKUP, obeyed

OURS = {"at": "2026-11-22T10:11:12.123+00:00", "level": "INFO", "message": "said: " + HOSTILE}
LINES = (
    json.dumps({**OURS, "exception": f"Traceback\n  File\n{HOSTILE}"}),
    HOSTILE.partition("\n")[0].encode(errors="replace").decode(),
)
PLACES = ("stack", "benchmarks", "tests")


@pytest.mark.parametrize("form", [CONSOLE, JSON])
def test_a_line_of_a_process_is_shown_as_text_and_is_one_entry(form: str, tmp_path: Path) -> None:
    written = io.StringIO()
    book = LogBook(tmp_path, Terminal(file=written, width=200), form)
    for line in LINES:
        book.line("api", line)
    book.close()
    shown = [written.getvalue(), book.last_lines("api"), *(path.read_text() for path in tmp_path.iterdir())]
    assert len(shown) == 4
    for text in shown:
        assert obeyed(text) == [] and "FORGED" in text and MARKUP in text
        assert not [line for line in text.splitlines() if line.lstrip() != line and line[:4] != "    "]
    with (tmp_path / "api.log").open() as file:
        assert form == CONSOLE or json.loads(file.readline())["message"] == OURS["message"], "the value is as it was"


@pytest.mark.parametrize("form", [CONSOLE, JSON])
def test_a_line_of_a_container_is_shown_as_text(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    for line in LINES:
        ContainerLog(form).line("cpu0", line)
    assert obeyed(capsys.readouterr().out) == []


@pytest.mark.parametrize("form", [CONSOLE, JSON])
def test_a_process_writes_one_entry_for_each_line(form: str) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        record = logging.makeLogRecord({"msg": "%s", "args": (HOSTILE,), "levelno": 20, "exc_info": sys.exc_info()})
    first, *rest = formatter(form).format(record).splitlines()
    assert obeyed("\n".join([first, *rest])) == []
    assert all(line.startswith("    ") for line in rest)


def test_the_table_of_the_demo_shows_text() -> None:
    written = io.StringIO()
    kernel = {"compilation_error": HOSTILE.replace("\n", " ")}
    job = {"state": State.COMPLETED, "result": {"verdict": "wrong" + HOSTILE, "kernel_exec_result": kernel}}
    trial = Trial(next(iter(every_example())), Status.PASSED, "j", 0.0, 1.0, job)
    terminal = Terminal(file=written, soft_wrap=True, width=400)
    terminal.print(demo_report.table([trial]))
    terminal.print(f"1/1 {trial.got}")
    assert [each for each in obeyed(written.getvalue()) if "FORGED" not in each] == [] and MARKUP in written.getvalue()


def test_styles_are_still_written_to_a_terminal() -> None:
    written = io.StringIO()
    terminal = Terminal(file=written, force_terminal=True, width=200, color_system="standard")
    terminal.print(HOSTILE, style="red")
    assert written.getvalue().startswith("\x1b[31m") and obeyed(written.getvalue(), styled=True) in ([], ["FORGED"])


@pytest.mark.parametrize(
    "text", [HOSTILE, "a\tb\u00a0c\r\nd\n", "".join(map(chr, range(0x3100))), "\U0001f600\U000e0041"]
)
def test_the_client_and_the_server_show_text_alike(text: str) -> None:
    assert plain(text) == untrusted_text.plain(text) and plain_lines(text) == untrusted_text.plain_lines(text)


def test_an_entry_is_indented() -> None:
    assert one_entry("a\n\nb\r\n") == "a\n    \n    b"


def test_no_program_has_a_console_of_its_own() -> None:
    found = [path for place in PLACES for path in (ROOT / place).rglob("*.py") if path.name != "terminal.py"]
    assert len(found) > 100
    for path in found:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8", errors="replace"))):
            if isinstance(node, ast.ImportFrom) and node.module == "rich.console":
                assert "Console" not in {each.name for each in node.names}, f"{path}: use stack.terminal"
