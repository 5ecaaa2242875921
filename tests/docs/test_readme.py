"""The documents against the program: printed requests are accepted, and what they name is there."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiflask import APIFlask
from redis import Redis

from api import create_app
from api.http.context import KEY, AppContext
from domain.paths import ROOT
from sandbox.isolation.uid import CAPABILITIES

PRESENT = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
"""The documents that describe the program as it is; the changelog tells how it came to be so."""

DOCUMENTS = [*PRESENT, ROOT / "CHANGELOG.md"]
PACKAGES = ("profiling", "validation", "domain", "sandbox", "tasks", "api", "backends", "stack")
REQUEST_KEYS = {"kernel": "/evaluate", "ref_kernel": "/compare", "ref_code": "/compare", "jobs": "/batch"}

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CURL = re.compile(r"localhost:\d+(/\w*).*? -d '(\{.*?\})'(?:$| \|)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?:[\w.-]+/)+(?:[\w-]+\.\w+)?|[\w-]+\.(?:py|md|toml|txt)")
_ENDPOINT = re.compile(r"\b(GET|POST|DELETE) (/[\w/<>.-]*)")
_MAKE = re.compile(r"\bmake ([a-z][a-z-]*)")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text_of(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def code_spans(document: Path) -> list[str]:
    """What stands between single backticks in the prose, the fenced blocks left out."""
    return _CODE.findall(_BLOCK.sub("", text_of(document)))


def printed_requests(document: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every request body in the document's curl, JSON and Python blocks, with the endpoint it goes to."""
    for language, block in _BLOCK.findall(text_of(document)):
        yield from requests_of(language, block)


def requests_of(language: str, block: str) -> Iterator[tuple[str, dict[str, Any]]]:
    match language:
        case "bash" | "sh":
            for path, body in _CURL.findall(block):
                yield path, json.loads(body)
        case "json":
            body = json.loads(block)
            if path := next((path for key, path in REQUEST_KEYS.items() if key in body), None):
                yield path, body
        case "python":
            yield from _posted(ast.parse(block))


def _posted(tree: ast.Module) -> Iterator[tuple[str, dict[str, Any]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "post":
            body = next(ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg == "json")
            address = ast.literal_eval(node.args[0])
            yield address.partition("localhost:8000")[2], body


REQUESTS = [
    pytest.param(path, body, id=f"{document.name}-{number}")
    for document in DOCUMENTS
    for number, (path, body) in enumerate(printed_requests(document))
]


@pytest.fixture(scope="module")
def app(redis_url: str) -> Iterator[APIFlask]:
    app = create_app()
    yield app
    context: AppContext = app.extensions[KEY]
    context.long_poll.hub.close()


def test_the_readme_and_the_reference_print_requests() -> None:
    printed = {document.name for document in DOCUMENTS if any(printed_requests(document))}
    assert {"README.md", "api.md"} <= printed
    assert len(REQUESTS) >= 8


@pytest.mark.parametrize(("path", "body"), REQUESTS)
def test_a_printed_request_is_accepted(app: APIFlask, redis: Redis, path: str, body: dict[str, Any]) -> None:
    answer = app.test_client().post(path, json=body)
    assert answer.status_code == 202, answer.get_data(as_text=True)


PIPED = [
    pytest.param(block, id=f"{document.stem}-{number}")
    for document in PRESENT
    for number, (_, block) in enumerate(_BLOCK.findall(text_of(document)))
    if "-d @-" in block
]
_KEPT = """curl() { cat > "$BODY"; printf '%s\\n' "$@" > "$ARGUMENTS"; echo '{}'; }"""
"""What stands for the curl of a printed pipeline: it keeps what it was to send."""


def test_the_documents_print_pipelines() -> None:
    assert {str(piped.id).partition("-")[0] for piped in PIPED} == {"API_GUIDE"}


@pytest.mark.parametrize("block", PIPED)
def test_a_printed_pipeline_makes_a_request(app: APIFlask, redis: Redis, tmp_path: Path, block: str) -> None:
    if "jq " in block and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    body, arguments = tmp_path / "body", tmp_path / "arguments"
    own = {**os.environ, "BODY": str(body), "ARGUMENTS": str(arguments)}
    subprocess.run(["bash", "-euo", "pipefail", "-c", f"{_KEPT}\n{block}"], cwd=ROOT, env=own, check=True, timeout=30)
    assert "Content-Type: application/json" in arguments.read_text()
    path = next(
        line.partition("localhost:8000")[2] for line in arguments.read_text().splitlines() if "localhost" in line
    )
    answer = app.test_client().post(path.partition("?")[0], data=body.read_bytes(), content_type="application/json")
    assert answer.status_code == 202, answer.get_data(as_text=True)
    assert "ignored" not in answer.get_json()


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_links_lead_somewhere(document: Path) -> None:
    for link in _LINK.findall(text_of(document)):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), f"{link} is not there"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", text_of(target), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", PRESENT, ids=relative)
def test_named_files_exist(document: Path) -> None:
    named = {span for span in code_spans(document) if _PATH.fullmatch(span)}
    missing = {name for name in named if not (ROOT / name).exists() and not (document.parent / name).exists()}
    assert not missing


@pytest.mark.parametrize("document", PRESENT, ids=relative)
def test_named_make_targets_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
    code = "\n".join([*code_spans(document), *(block for _, block in _BLOCK.findall(text_of(document)))])
    assert set(_MAKE.findall(code)) <= targets


@pytest.mark.parametrize("document", PRESENT, ids=relative)
def test_named_endpoints_exist(app: APIFlask, document: Path) -> None:
    served = {
        (method, re.sub(r"<.*?>", "<>", rule.rule))
        for rule in app.url_map.iter_rules()
        for method in rule.methods or ()
    }
    for span in code_spans(document):
        for method, path in _ENDPOINT.findall(span):
            assert (method, re.sub(r"<.*?>", "<>", path)) in served, f"{method} {path} is not served"


@pytest.mark.parametrize("document", PRESENT, ids=relative)
def test_named_settings_and_constants_exist(document: Path) -> None:
    files = [ROOT / "Makefile", ROOT / "docker-compose.yml", ROOT / ".ci" / "run"]
    sources = [*(ROOT / package for package in PACKAGES), ROOT / "client" / "kernel_eval_client", *files]
    known = "\n".join(
        text_of(path) for source in sources for path in ([source] if source.is_file() else source.rglob("*.py"))
    )
    known += "\n".join(f"CAP_{name}" for name in CAPABILITIES)
    named = {span.partition("=")[0] for span in code_spans(document)}
    assert {name for name in named if _VARIABLE.fullmatch(name) and name not in known} == set()


def test_every_setting_is_documented() -> None:
    read = re.findall(r'env\.\w+\("(\w+)"', text_of(ROOT / "domain" / "settings.py"))
    assert read
    shown = set(code_spans(ROOT / "docs" / "settings.md"))
    assert [name for name in read if name not in shown] == []
