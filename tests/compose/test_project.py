"""The wheels that builds of images are given, by an address that does not change from run to run."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import httpx
import pytest

from tests.compose.journal import say
from tests.compose.project import CERTIFICATES, wheels


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "offered"
    folder.mkdir()
    (folder / "torch-1.whl").write_bytes(b"a wheel")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.delenv("PIP_ARGS", raising=False)
    return folder


def address(arguments: str) -> str:
    return re.findall(r"--find-links (\S+)", arguments)[0]


def test_the_wheels_are_served_at_the_same_address_again(tmp_path: Path, offered: Path) -> None:
    with wheels(tmp_path) as first:
        assert first.startswith(CERTIFICATES)
        assert httpx.get(f"{address(first)}torch-1.whl", trust_env=False).content == b"a wheel"
    with wheels(tmp_path) as second:
        assert second == first
        assert "torch-1.whl" in httpx.get(address(second), trust_env=False).text


def test_another_port_is_taken_where_that_one_is_in_use(tmp_path: Path, offered: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        (tmp_path / "wheels.port").write_text(str(other.getsockname()[1]))
        with wheels(tmp_path) as arguments:
            assert str(other.getsockname()[1]) not in arguments
            assert httpx.get(f"{address(arguments)}torch-1.whl", trust_env=False).is_success


def test_arguments_of_pip_are_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    monkeypatch.setenv("PIP_ARGS", "--index-url https://packages.example/simple")
    with wheels(tmp_path) as arguments:
        assert arguments == f"{CERTIFICATES} --index-url https://packages.example/simple"


def test_no_key_and_no_password_is_in_a_transcript(capsys: pytest.CaptureFixture[str]) -> None:
    say("the key is kevk_abcDEF012, the password 0123456789abcdef01234567; 20 of 20")
    printed = capsys.readouterr().out
    assert "kevk" not in printed and "0123456789abcdef" not in printed and printed.endswith("20 of 20\n")
