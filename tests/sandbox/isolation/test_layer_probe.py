"""Layers are what a confined process finds out about itself, and a worker can insist on them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from domain.paths import ROOT
from domain.settings import SANDBOX_LAYERS
from sandbox.isolation import landlock, layer_probe, seccomp
from sandbox.isolation.file_access import out_of_reach
from sandbox.isolation.layer_probe import Layer

AS_A_USER = """
import os, sys
from sandbox.isolation import uid as identity
identity.become(int(sys.argv[1]), search_everywhere=identity.searches_everywhere())
from tasks.worker.lifecycle import check_sandbox
check_sandbox()
print("it starts")
"""

IN_A_CONTAINER = """
from sandbox.isolation import uid as identity
from tests.sandbox.container import DOCKERS_CAPABILITIES
identity.keep_only(DOCKERS_CAPABILITIES)
from tasks.worker.lifecycle import check_sandbox
check_sandbox()
print("it starts")
"""

BEFORE_ITS_TIME = """
import errno, os, resource, signal, socket, sys
from sandbox.isolation import seccomp
from sandbox.isolation.rlimits import no_new_privileges
no_new_privileges()
rules = seccomp.rules(own_user=False, truncation_elsewhere=False)
seccomp.install(rules, own_user=False, signals_elsewhere=False)

def refused(attempt, *arguments):
    try:
        attempt(*arguments)
    except OSError as error:
        return error.errno
    return 0

outside = os.getppid()
with open("file", "w") as file:
    file.write("kept")
found = [
    refused(os.kill, outside, 0), refused(os.kill, 1, 0), refused(os.kill, os.getpid(), 0),
    refused(signal.pidfd_send_signal, os.pidfd_open(outside), 0),
    refused(os.truncate, "file", 0), refused(os.open, "file", os.O_RDONLY | os.O_TRUNC),
    refused(os.open, "file", os.O_WRONLY | os.O_TRUNC), refused(os.chmod, "file", 0o600),
    refused(socket.socket, socket.AF_UNIX), refused(socket.socket, socket.AF_UNIX, socket.SOCK_DGRAM),
    refused(socket.socket, socket.AF_INET), refused(os.setpriority, os.PRIO_PROCESS, outside, 5),
    refused(os.setpriority, os.PRIO_PROCESS, 0, 5),
    refused(os.kill, os.getpid(), 9), refused(os.kill, 0, 9), refused(signal.raise_signal, 9),
    refused(resource.prlimit, 0, resource.RLIMIT_CPU, (9, 9)), refused(resource.getrlimit, resource.RLIMIT_CPU),
    refused(resource.prlimit, outside, resource.RLIMIT_NOFILE),
]
names = [errno.errorcode.get(code, "done") for code in found]
print(" ".join(names))
"""


def test_what_holds_here_is_found_out(tmp_path: Path) -> None:
    found = layer_probe.probe_layers(tmp_path / "work", gpu=False)
    assert tuple(found) == SANDBOX_LAYERS
    assert found["no_new_privileges"].active and found["capabilities"].active
    assert found["seccomp"].active == (seccomp.available() is None)
    assert found["landlock"].active == (landlock.abi() >= landlock.OLDEST_ABI)
    if os.geteuid() != 0:
        assert found["own_user"] == Layer(False, "the worker is not root")
    assert all(layer.detail for layer in found.values()), found
    assert list((tmp_path / "work").iterdir()) == []


def test_a_probe_that_is_killed_says_nothing_of_the_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, killed = subprocess.run, []

    def run_and_kill_once(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if killed:
            return run(command, **options)
        killed.append(command)
        return run(["/bin/sh", "-c", "kill -KILL $$"], **options)

    monkeypatch.setattr(subprocess, "run", run_and_kill_once)
    assert tuple(layer_probe.probe_layers(tmp_path / "work", gpu=False)) == SANDBOX_LAYERS
    monkeypatch.setattr(layer_probe, "PROBES", 1)
    killed.clear()
    with pytest.raises(layer_probe.CannotConfine, match="ended with -9"):
        layer_probe.probe_layers(tmp_path / "work", gpu=False)
    assert list((tmp_path / "work").iterdir()) == []


def test_what_is_required_and_missing_is_named() -> None:
    found = {"landlock": Layer(False, "the kernel has ABI 0"), "seccomp": Layer(True, "67 refused")}
    assert layer_probe.missing(found, ("landlock", "seccomp")) == {"landlock": "the kernel has ABI 0"}
    assert layer_probe.missing(found, ("seccomp",)) == {}


@pytest.mark.parametrize(("required", "starts"), [("available", True), ("no_new_privileges", True), ("strict", False)])
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_worker_that_lacks_what_is_required_does_not_start(required: str, starts: bool) -> None:
    user = 54_322
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # pytest's own folders are closed to that user.
        os.chown(folder, user, user)
        own = {"SANDBOX": required, "STATE_DIR": f"{folder}/state", "LEASE_DIR": folder}
        done = subprocess.run(
            [sys.executable, "-c", AS_A_USER, str(user)],
            cwd=ROOT,
            env={**os.environ, **own, "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode == 0) == starts, done.stderr
    assert ("it starts" in done.stdout) == starts
    if not starts:
        assert "own_user (the worker is not root)" in done.stderr and "docs/security.md" in done.stderr


@pytest.mark.parametrize(("required", "starts"), [("available", True), ("strict", False)])
@pytest.mark.skipif(
    os.geteuid() != 0 or out_of_reach(ROOT) is None, reason="needs root, and an interpreter that others cannot read"
)
def test_that_submissions_are_root_is_said(tmp_path: Path, required: str, starts: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CONTAINER],
        cwd=ROOT,
        env={**os.environ, "SANDBOX": required, "STATE_DIR": str(tmp_path / "state"), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ("it starts" in done.stdout) == starts == (done.returncode == 0), done.stderr
    assert starts or "own_user (submissions are uid 0, without capabilities: /" in done.stderr
    assert starts or " is closed to other users: chmod o+x /" in done.stderr


def test_what_landlock_does_not_keep_on_old_kernels_seccomp_does(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEFORE_ITS_TIME],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    signals = "EPERM EPERM done EPERM"
    files = "EPERM EPERM done EPERM"
    others = "done EPERM EPERM EPERM done"
    deadly = "EPERM EPERM EPERM EPERM done EPERM"
    assert done.stdout.split() == f"{signals} {files} {others} {deadly}".split()
