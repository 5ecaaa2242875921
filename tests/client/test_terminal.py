"""Nothing that came from a submission reaches a terminal as a command: every command, against a hostile service."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from domain.paths import ROOT
from kernel_eval_client import errors
from kernel_eval_client.cli import show
from kernel_eval_client.cli.dispatch import COMMANDS
from kernel_eval_client.cli.main import main
from kernel_eval_client.cli.terminal import Grid, Terminal
from kernel_eval_client.untrusted_text import plain, plain_lines
from tests.client.failing import Reply, Told, listening
from tests.client.hostile import HOSTILE, MARKUP, broken, obeyed, result, service
from tests.client.test_service import TWICE

CLI = ROOT / "client" / "kernel_eval_client" / "cli"
SOURCE = TWICE.source_code + f"\n'''{HOSTILE.replace(chr(0), '')}'''\n"

FILE_NAME = os.fsdecode(b"k\x1b]0;x\x07\x9b\xff[red]\nFORGED  passed.py")

CALLS = {
    "evaluate": ["evaluate", "{file}"],
    "compare": ["compare", "{file}", "{file}"],
    "qualify": ["qualify", "{file}", "{file}"],
    "submit": ["submit", "{file}"],
    "wait": ["wait", "j1"],
    "confirm": ["confirm", "j1"],
    "again": ["again", "j1"],
    "source": ["source", "j1"],
    "source of the reference": ["source", "j1", "--reference"],
    "watch": ["watch", "j1"],
    "watch of a file": ["watch", "{file}", "--runs", "1"],
    "batch": ["batch", "{folder}"],
    "suite": ["suite", "starter", "--only", "level1/softmax", "--results", "{folder}/results.jsonl"],
    "suite, listed": ["suite", "starter", "--list"],
    "status": ["status", "j1"],
    "cancel": ["cancel", "j1"],
    "list": ["list"],
    "report": ["report", "j1"],
    "report as a page": ["report", "j1", "--html"],
    "report in a file": ["report", "j1", "--output", "{folder}/report.html"],
    "artifacts": ["artifacts", "j1"],
    "artifacts, saved": ["artifacts", "j1", "-o", "{folder}/out"],
    "doctor": ["doctor"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / FILE_NAME).write_bytes(SOURCE.encode(errors="replace"))
    (tmp_path / f"none {FILE_NAME}").write_text("def _helper(): pass\n")
    (tmp_path / f"latin {FILE_NAME}").write_bytes("# é".encode("latin-1"))
    return tmp_path


@pytest.fixture(params=["piped", "coloured"])
def styled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Whether rich takes the output for a terminal."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    if request.param == "coloured":
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "120")
    yield request.param == "coloured"


def run(call: list[str], told: Told, folder: Path, *more: str) -> int:
    arguments = [each.format(file=folder / FILE_NAME, folder=folder) for each in call]
    with listening(told):
        return main([*arguments, *more, "--url", told.url, "--patience", "0"])


def test_every_command_is_called() -> None:
    # `mcp` speaks a protocol; its texts are looked at below.
    assert {call[0] for call in CALLS.values()} == set(COMMANDS) - {"mcp"}


@pytest.mark.parametrize("name", CALLS)
def test_nothing_hostile_is_printed(name: str, styled: bool, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(CALLS[name], service(), folder, "--verbose")
    out, err = capsys.readouterr()
    assert out or err
    # The lines of a page, and of a source, are not the command's.
    found = [*obeyed(out, styled=styled), *obeyed(err, styled=styled)]
    assert [each for each in found if "FORGED" not in each or not name.startswith(("report", "source"))] == []
    if name in ("evaluate", "status", "doctor", "artifacts"):
        assert MARKUP in out, "text, and no markup"


@pytest.mark.parametrize("name", CALLS)
def test_nothing_hostile_is_in_json(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(CALLS[name], service(), folder, "--json")
    out, err = capsys.readouterr()
    assert obeyed(out) == [] and obeyed(err) == [] and (out.isascii() or "html" in CALLS[name])
    if name == "evaluate":
        assert json.loads(out)["kernel_exec_result"]["output"] == "said" + HOSTILE, "the value is as it was"


@pytest.mark.parametrize("status", [400, 404, 500])
@pytest.mark.parametrize("name", CALLS)
def test_nothing_hostile_is_in_an_error(
    name: str, status: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ((), ("--json",)):
        run(CALLS[name], broken(status), folder, *more)
        out, err = capsys.readouterr()
        assert obeyed(out) == [] and obeyed(err) == []


@pytest.mark.parametrize("name", [name for name in CALLS if name != "watch"])
def test_another_service_is_told_of_without_its_bytes(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ((), ("--json",)):
        run(CALLS[name], Told(Reply(200, HOSTILE.encode(errors="replace"))), folder, *more)
        out, err = capsys.readouterr()
        assert [
            each for each in obeyed(out + err) if "FORGED" not in each or not name.startswith(("report", "source"))
        ] == []


def test_a_wrong_command_line_is_repeated_without_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["status", "j1", HOSTILE])
    assert [each for each in obeyed(capsys.readouterr().err) if "FORGED" not in each] == []


def test_what_nobody_catches_is_printed_without_them() -> None:
    begun = f"from kernel_eval_client.cli import streams; streams.clean(); text = {HOSTILE!r}; "
    for last in ("raise ValueError(text)", "import warnings; warnings.warn(text)", "print(text)"):
        ended = subprocess.run(
            [sys.executable, "-c", begun + last],
            env={**os.environ, "PYTHONPATH": str(ROOT / "client"), "FORCE_COLOR": "1"},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert "hidden" in ended.stdout + ended.stderr
        # What is not a line of ours may begin anywhere: a traceback is nobody's verdict.
        assert [each for each in obeyed(ended.stdout + ended.stderr) if "FORGED" not in each] == []


def test_an_error_of_the_library_has_none_in_its_message() -> None:
    error = errors.CallerError(HOSTILE, problem={"errors": [{"path": [HOSTILE], "message": HOSTILE}]})
    told = f"{error}\n{error.fields[0]}"
    assert [each for each in obeyed(told) if "FORGED" not in each] == []
    assert error.problem["errors"][0]["path"] == [HOSTILE]


def test_an_encoding_that_lacks_a_character_stops_nothing(folder: Path) -> None:
    with listening(service()) as told:
        ended = subprocess.run(
            [sys.executable, "-m", "kernel_eval_client", "status", "j1", "--url", told.url],
            env={**os.environ, "PYTHONPATH": str(ROOT / "client"), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
            capture_output=True,
            encoding="ascii",
            check=False,
        )
    assert ended.returncode == 0 and ended.stderr == "" and obeyed(ended.stdout) == []


def test_what_stays_is_what_was_said() -> None:
    assert plain("a\tb\u00a0c\nd\x1be") == "a b c\ufffdd\ufffde"
    assert plain_lines("a\tb\r\nc\rd \u00e9\u4e2d\U0001f600") == "a\tb\nc\ufffdd \u00e9\u4e2d\U0001f600"


def test_a_page_keeps_what_orders_its_text_by_name() -> None:
    written = io.StringIO()
    Terminal(written).page("<p>\u05d0\u200f\r\n\x1b[2J\x7f\x9b\ufffd")
    assert written.getvalue() == "<p>\u05d0&#x200f;\n\ufffd[2J\ufffd\ufffd\ufffd"


def test_a_cell_is_one_line() -> None:
    written = io.StringIO()
    terminal = Terminal(written, width=400)
    grid = Grid("a", "b")
    grid.add_row(HOSTILE, show.truncatable(HOSTILE))
    terminal.table(grid)
    assert len(written.getvalue().splitlines()) == 2 and obeyed(written.getvalue()) == []


def test_no_other_module_of_the_command_line_writes() -> None:
    """A new command goes through the terminal, as it has no other way."""
    for path in CLI.glob("*.py"):
        if path.name in ("terminal.py", "streams.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rich"):
                assert node.module == "rich.text", f"{path.name} has a console of its own"
            if isinstance(node, ast.Import):
                assert not any(each.name.startswith("rich") for each in node.names), path.name
            assert not (isinstance(node, ast.Name) and node.id == "print"), f"{path.name} prints"


def test_a_hostile_result_has_everything_that_is_shown() -> None:
    written = io.StringIO()
    from kernel_eval_client import Result

    show.result(Terminal(written), "k", SOURCE, Result.from_dict(result()), verbose=True)
    text = written.getvalue()
    for shown in ("flag", "weak", "launches", "inputs", "artifacts", "sanitizer", "counters", "printed:", "advice"):
        assert f"\n  {shown}" in text, shown


def test_nothing_hostile_is_in_the_texts_for_agents() -> None:
    pytest.importorskip("mcp", reason="an extra of the client that an offline GPU box lacks")
    from kernel_eval_client.agents import arguments, mcp_server
    from tests.client.test_mcp import call

    known, _ = get_args(get_args(arguments.Part)[0])  # A literal, or None.
    asked = [("result", {"job_id": "j1", "part": part}) for part in (*get_args(known), "nosuch" + HOSTILE)]
    asked += [("evaluate", {"source_code": SOURCE}), ("compare", {"reference_code": SOURCE, "candidate_code": SOURCE})]
    asked += [("result", {"job_id": "j1"}), ("status", {"job_id": "j1"}), ("cancel", {"job_id": "j1"}), ("jobs", {})]
    asked += [("artifact", {"job_id": "j1"}), ("artifact", {"job_id": "j1", "name": HOSTILE}), ("service", {})]
    asked += [("list_examples", {}), ("list_examples", {"name": HOSTILE}), ("status", {"job_id": "j1", HOSTILE: 1})]
    for told in (service(), broken(400)):
        with listening(told):
            for _, text in call(mcp_server.server(told.url), *asked):
                assert [each for each in obeyed(text) if "FORGED" not in each] == []
                assert not [line for line in text.splitlines() if line.startswith("FORGED")]
