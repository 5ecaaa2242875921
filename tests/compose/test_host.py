"""Where a trial of docker-compose.yml runs, and what it prints where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compose import host
from tests.compose.project import ROOT

DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n'
UBUNTU = "ID=ubuntu\nID_LIKE=debian\n"


def test_root_on_debian_is_suited() -> None:
    assert host.unsuited(0, DEBIAN) is None


@pytest.mark.parametrize(
    ("user", "release", "reason"), [(1000, DEBIAN, "root"), (0, UBUNTU, "Debian"), (0, "", "Debian")]
)
def test_others_are_not(user: int, release: str, reason: str) -> None:
    assert reason in str(host.unsuited(user, release))


def test_a_program_that_is_not_found_has_its_package_named() -> None:
    assert "its-package" in host.missing({"a-program-that-nobody-has": "its-package", "python3": "python3"})
    assert "python3" not in host.missing({"python3": "python3"})


def test_the_programs_of_an_administrator_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/sbin")
    host.extend_path()
    host.extend_path()
    assert os.environ["PATH"] == "/usr/bin:/sbin:/usr/local/sbin:/usr/sbin"


def test_an_ordinary_user_reads_in_one_line_that_nothing_was_tried(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.compose", "--short", "--install"]
    if os.geteuid() == 0:
        # Without a mapping of users the process is nobody to itself, and still reads its own files.
        command = ["unshare", "--user", *command]
        if subprocess.run(["unshare", "--user", "true"], capture_output=True, check=False).returncode != 0:
            pytest.skip("no user namespaces may be made here")
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "docker-compose.yml was not tried here: it needs root.\n"
    assert done.stderr == "" and not list(tmp_path.iterdir())
