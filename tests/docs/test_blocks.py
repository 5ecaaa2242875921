"""Every fenced block of the documents is run by a test, or stands in one table with the reason why it is not."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest

from domain.paths import ROOT
from domain.settings import settings
from kernel_eval_client.cli.main import parser
from tests.client import test_documents
from tests.docs import test_readme, test_shell_blocks
from tests.docs.blocks import BLOCKS, DOCUMENTS, Block

SOURCES = ("api", "backends", "domain", "profiling", "sandbox", "stack", "tasks", "validation")

NOT_RUN = {
    "README-0": "starts the whole service (tests/stack/ does); its targets are expanded by make -n",
    "README-2": "installs from an index (test_install.py installs without); test_documents.py runs its commands",
    "first-kernel-0": "installs from an index; each command is parsed",
    "run-for-others-1": "`make serve` runs on; its target is expanded by make -n",
    "requests-by-type-0": "a file of the reader's; tests/client/test_task_pages.py sends each request of the page",
    **{
        name: "tests/client/test_task_pages.py runs it"
        for name in (
            *(f"first-kernel-{number}" for number in range(1, 5)),
            *(f"why-slow-{number}" for number in range(4)),
            "train-a-model-1",
            "run-for-others-0",
        )
    },
    "DEVICE_METRICS_GUIDE-0": "needs a GPU with Nsight Compute, and files of the reader's; each command is parsed",
    "client-0": "installs from an index; each command is parsed",
    "client-8": "files and jobs of the reader's; each command is parsed, and tests/client/test_cli.py runs the like",
    "mcp-0": "installs from an index, and tools run on; tests/client/test_mcp.py runs both kinds",
    "suites-0": "the whole suite takes minutes (tests/client/test_suite_command.py, slow); each command is parsed",
    "settings-1": "installs nothing, but judges everything; its target is expanded by make -n",
    "settings-2": "downloads many GB; its target is expanded by make -n, its group and its file exist",
    "operations-2": "a unit of systemd; parsed, and its command is the one of `make serve`",
    "architecture-0": "a drawing",
    "architecture-1": "a drawing; the import rules of pyproject.toml hold it",
    **{f"before-you-merge-{number}": "tests/client/test_before_you_merge.py runs it" for number in range(7)},
    "suites-1": "names of files; tests/client/test_suites.py has each form",
}
"""Blocks that are not run, and why. What can be checked of them all the same is checked below."""

ANSWERS = {
    *(f"api-{number}" for number in (1, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 21, 22)),
    "security-0",
}
"""Answers of the service, shortened by hand: their names are those that the program writes."""


def run_by_tests() -> Iterator[str]:
    programs = {str(each.values[0]) for each in test_documents.PROGRAMS}
    for name, block in BLOCKS.items():
        if block.language == "python" and block.text in programs:
            yield name  # Executed against a real service.
        elif block.document == "API_GUIDE" or (block.document == "README" and "localhost:8000" in block.text):
            yield name  # Executed by bash, against a real service.
        elif next(test_readme.requests_of(block.language, block.text), None) is not None:
            yield name  # Its request is sent to the real API.
        elif name in test_shell_blocks.RUN:
            yield name  # Executed by bash.
        elif "mcpServers" in block.text or '"servers"' in block.text or name == "mcp-3":
            yield name  # test_documents.py starts what they name, and gets that answer.


RUN = set(run_by_tests())


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_is_run_or_says_why_not(name: str) -> None:
    ways = [name in RUN, name in NOT_RUN, name in ANSWERS]
    assert sum(ways) == 1, f"run it in tests/docs/test_shell_blocks.py, or say in NOT_RUN why not:\n{BLOCKS[name].text}"


def test_the_tables_name_blocks_that_are_there() -> None:
    assert {*NOT_RUN, *ANSWERS} <= set(BLOCKS)
    assert len(BLOCKS) > 70


def test_no_fence_is_left_out() -> None:
    # An odd one, or one that is indented, would hide blocks from all of these tests.
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        opened = len(re.findall(r"^\s*```\w+\s*$", text, re.MULTILINE))
        assert opened == sum(block.document == path.stem for block in BLOCKS.values()), path.name


SHELL = [name for name in NOT_RUN if BLOCKS[name].language == "bash"]


@pytest.mark.parametrize("name", SHELL)
def test_a_block_that_is_not_run_is_one_of_a_shell(name: str) -> None:
    subprocess.run(["bash", "-n", "-c", BLOCKS[name].text], check=True)


def words_of(block: Block) -> Iterator[list[str]]:
    """Each command's words, its settings and those of before && left out."""
    for line in block.lines:
        for command in re.split(r"\s&&\s", line):
            words = shlex.split(command, comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words = words[1:]
            if words:
                yield words


@pytest.mark.parametrize("name", SHELL)
def test_what_it_calls_is_there(name: str) -> None:
    for words in words_of(BLOCKS[name]):
        match words:
            case ["make", *rest]:
                done = subprocess.run(["make", "-n", f"PY={sys.executable}", *rest], cwd=ROOT, capture_output=True)
                assert done.returncode == 0 and done.stdout, done.stderr
            case ["kernel-eval", *rest]:
                parser().parse_args(rest)
            case ["pip" | ".venv/bin/pip", "install", target]:
                held(target)
            case ["pip", "download", "--constraint", file, "--group", group, "--dest", "wheels", "pip"]:
                assert (ROOT / file).is_file()
                assert group in tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
            case ["source", ".venv/bin/activate"]:
                pass
            case ["curl", *_, "@request.json"]:
                pass
            case ["export", setting]:
                assert setting.partition("=")[0] == "KERNEL_EVAL_URL"
            case _:
                pytest.fail(f"nothing checks {words}")


def held(target: str) -> None:
    """The client's folder, with extras that it has."""
    folder, _, extras = target.rstrip("]").partition("[")
    known = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= set(known)


def test_the_unit_starts_what_make_serve_starts() -> None:
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(BLOCKS["operations-2"].text)
    service = unit["Service"]
    assert service["ExecStart"].removeprefix(service["WorkingDirectory"]) == "/.venv/bin/python -m stack serve"
    assert "@$(PY) -m stack serve" in (ROOT / "Makefile").read_text()
    assert int(service["TimeoutStopSec"]) > settings().drain_seconds


def known_names() -> set[str]:
    """Every word in the program's own text: what it writes into an answer is one of them."""
    sources = [path for package in SOURCES for path in (ROOT / package).rglob("*.py")]
    return set(re.findall(r"\w+", "\n".join(path.read_text(encoding="utf-8") for path in sources)))


FREE = {"…", "smsp__inst_executed.sum", "kernel -> extra", "kernel -> kernel_type"}
"""Places of what is left out, a counter of NVIDIA's, and two fields' paths."""


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_a_printed_answer_has_names_of_the_program(name: str) -> None:
    block = BLOCKS[name]
    if block.language == "json":
        json.loads(block.text)
    printed = set(re.findall(r'"([^"\n]+)":', block.text))
    assert printed, "it has names"
    assert printed - FREE - known_names() == set()
