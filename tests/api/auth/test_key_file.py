"""The file of keys: it holds no key, and a change counts from the next look on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from api.auth.key_file import PATTERN, KeyFile, KeyFileError
from domain.access import Scope
from domain.paths import ROOT


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "keys.json", requests_per_minute=60, max_jobs=10)


def test_a_key_is_known_again_and_is_not_in_the_file(file: KeyFile, tmp_path: Path) -> None:
    secret = file.add("alice", [Scope.SUBMIT, Scope.READ], {"max_jobs": 3})
    assert PATTERN.fullmatch(secret)
    key = file.find(secret)
    assert key is not None
    assert (key.name, key.scopes, key.requests_per_minute, key.max_jobs) == ("alice", {"submit", "read"}, 60, 3)
    random_part = secret.rpartition("_")[2]
    assert len(random_part) * 4 == 256
    for path in tmp_path.iterdir():
        assert random_part not in path.read_text()
        assert path.stat().st_mode & 0o077 == 0


def test_what_is_no_key_of_ours_is_not_found(file: KeyFile) -> None:
    secret = file.add("alice", [Scope.READ], {})
    other = secret[:-1] + ("0" if secret[-1] != "0" else "1")
    unknown = secret.replace(secret.split("_")[1], "0" * 12)
    for wrong in ("", "x", other, unknown, secret + "0", secret.upper(), secret + "\n", "é" * 82, secret[:-1]):
        assert file.find(wrong) is None, wrong


def test_a_revoked_key_is_not_found_from_then_on(file: KeyFile, tmp_path: Path) -> None:
    reader = KeyFile(tmp_path / "keys.json", 60, 10)
    first, second = file.add("a", [Scope.READ], {}), file.add("b", [Scope.READ], {})
    assert reader.find(first) and reader.find(second)
    file.revoke("a")
    assert reader.find(first) is None
    assert reader.find(second)
    key = reader.find(second)
    assert key is not None
    file.revoke(key.key_id)
    assert reader.find(second) is None
    again = file.add("a", [Scope.READ], {})
    assert reader.find(first) is None and reader.find(again)
    assert again.split("_")[1] != first.split("_")[1], "the old key's jobs do not become the new one's"
    with pytest.raises(KeyFileError, match="no key 'nobody'"):
        file.revoke("nobody")
    with pytest.raises(KeyFileError, match="already"):
        file.add("a", [Scope.READ], {})
    with pytest.raises(KeyFileError, match="no name"):
        file.add("a b\n", [Scope.READ], {})


def test_no_file_is_no_keys(file: KeyFile) -> None:
    assert file.keys() == {}
    assert file.find("kevk_" + "0" * 12 + "_" + "0" * 64) is None


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"keys": {"id": 1}}', '{"keys": [{"id": "x"}]}', '{"keys": null}', "\xff"]
)
def test_a_file_that_cannot_be_read_is_said_to_be(file: KeyFile, tmp_path: Path, content: str) -> None:
    (tmp_path / "keys.json").write_text(content, encoding="latin-1")
    with pytest.raises(KeyFileError, match="no file of keys"):
        file.keys()
    with pytest.raises(KeyFileError, match="no file of keys"):
        file.add("a", [Scope.READ], {})


def test_an_unknown_scope_opens_nothing(file: KeyFile, tmp_path: Path) -> None:
    secret = file.add("a", [Scope.READ], {})
    stored = json.loads((tmp_path / "keys.json").read_text())
    stored["keys"][0]["scopes"] = ["read", "everything"]
    (tmp_path / "keys.json").write_text(json.dumps(stored))
    with pytest.raises(KeyFileError):
        file.find(secret)


def test_a_file_that_others_may_write_is_not_trusted(file: KeyFile, tmp_path: Path) -> None:
    secret = file.add("a", [Scope.ADMIN], {})
    (tmp_path / "keys.json").chmod(0o660)
    with pytest.raises(KeyFileError, match="chmod 600"):
        file.find(secret)


def test_keys_made_at_once_are_all_there(tmp_path: Path) -> None:
    def add(name: str) -> str:
        return KeyFile(tmp_path / "keys.json", 60, 10).add(name, [Scope.READ], {})

    with ThreadPoolExecutor(8) as pool:
        secrets = list(pool.map(add, [f"key{number}" for number in range(24)]))
    file = KeyFile(tmp_path / "keys.json", 60, 10)
    assert all(file.find(secret) for secret in secrets)
    assert len(file.keys()) == 24
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keys.json", "keys.json.lock"]


def keys(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stack", "keys", *arguments],
        cwd=ROOT,
        env={**os.environ, "API_KEYS_FILE": str(folder / "keys.json")},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_command(tmp_path: Path) -> None:
    made = keys(tmp_path, "add", "alice", "--scope", "submit", "--scope", "read", "--max-jobs", "5")
    assert made.returncode == 0, made.stderr
    secret = made.stdout.strip()
    assert PATTERN.fullmatch(secret)
    assert "only its hash" in made.stderr
    listed = keys(tmp_path, "list").stdout
    assert "alice" in listed and "read submit" in listed and "5 jobs" in listed
    assert secret.rpartition("_")[2] not in listed
    again = keys(tmp_path, "add", "alice", "--scope", "read")
    assert (again.returncode, again.stdout) == (1, "")
    assert "revoke it first" in again.stderr
    assert keys(tmp_path, "add", "bob").returncode == 2
    assert keys(tmp_path, "revoke", "alice").returncode == 0
    assert keys(tmp_path, "list").stdout == ""
    assert KeyFile(tmp_path / "keys.json", 60, 10).find(secret) is None
