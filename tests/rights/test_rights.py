"""A worker under each set of rights: which layers hold, builds of each type, the build cache, whole jobs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from redis import Redis

from domain.kernel import KernelType
from domain.paths import ROOT
from sandbox.isolation.file_access import below
from sandbox.isolation.namespaces import TEMPORARY
from stack.example import KERNELS
from tests.rights.host import interpreter, require, writable_folder
from tests.rights.restricted_environment import needed
from tests.rights.rights_sets import EVERY_SET, KUBERNETES, PLAIN_ROOT, Rights
from tests.rights.worker_run import AGAIN, Worked, api, examples, worked

SEEN = """
import json, os, sys
from sandbox.isolation import uid as identity
from sandbox.isolation.syscalls import call

def refused(attempt):
    try:
        attempt()
    except OSError:
        return True
    return False

def made(folder):
    os.mkdir(folder)
    os.rmdir(folder)

def namespace(flag):
    child = os.fork()
    if not child:
        try:
            call("unshare", flag)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0

status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "user": os.getuid(),
    "group": os.getgid(),
    "capabilities": identity.held(),
    "bound": int(status["CapBnd"], 16),
    "no_new_privileges": status["NoNewPrivs"].strip() == "1",
    "checkout": not refused(lambda: made("rights-test")),
    "cgroup": not refused(lambda: made("/sys/fs/cgroup/rights-test")),
    "temporary": os.stat("/tmp").st_mode & 0o7777,
    "shared_memory": os.stat("/dev/shm").st_mode & 0o7777,
    "mounts": namespace(0x00020000),
    "users": namespace(0x10000000),
    "folder": not refused(lambda: made(sys.argv[1] + "/own")),
}))
"""


@pytest.fixture(scope="module", params=EVERY_SET, ids=lambda rights: rights.name)
def rights(request: pytest.FixtureRequest) -> Rights:
    return require(request.param)


@pytest.fixture(scope="module")
def folder(rights: Rights) -> Iterator[Path]:
    with writable_folder(rights) as made:
        yield made


@pytest.fixture(scope="module")
def command(rights: Rights, folder: Path) -> list[str]:
    """Starts an interpreter with those rights."""
    return interpreter(rights, folder)


@pytest.fixture(scope="module")
def client(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with api(redis_url, tmp_path_factory.mktemp("api")) as opened:
        yield opened


@pytest.fixture(scope="module")
def done(
    rights: Rights,
    command: list[str],
    folder: Path,
    redis_url: str,
    client: httpx.Client,
    tmp_path_factory: pytest.TempPathFactory,
) -> Worked:
    with Redis.from_url(redis_url) as redis:
        redis.flushall()
        return worked(rights, command, folder, tmp_path_factory.mktemp("worker") / "log", redis, client)


def test_a_process_has_those_rights_and_no_others(rights: Rights, command: list[str], folder: Path) -> None:
    ran = subprocess.run([*command, "-c", SEEN, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert seen["folder"]
    assert seen["no_new_privileges"] is rights.no_new_privileges
    if os.geteuid() == 0:
        assert (seen["user"], seen["group"]) == (rights.user, rights.user)
    if rights.capabilities is not None:
        assert seen["capabilities"] == sum(1 << each for each in rights.capabilities)
    if rights.user == 0:
        assert seen["bound"] == seen["capabilities"]
    if rights.read_only:
        assert (seen["checkout"], seen["cgroup"]) == (False, False)
    if not rights.new_namespaces:
        assert (seen["mounts"], seen["users"]) == (False, False)
    for place, mode in (("temporary", rights.temporary), ("shared_memory", rights.shared_memory)):
        assert mode is None or seen[place] == mode
    assert seen["mounts"] or rights is not PLAIN_ROOT


def test_the_layers_that_are_to_hold_do_and_no_others(rights: Rights, done: Worked) -> None:
    held = {name for name, layer in done.view.sandbox.items() if layer["active"]}
    hidden = {"private_tmp"} if below(TEMPORARY, needed()) else set()  # It would hide the interpreter or the checkout.
    assert set(rights.holds) - hidden <= held, done.view.sandbox
    assert not set(rights.lacks) & held, done.view.sandbox


@pytest.mark.parametrize("name", [example.name for example in examples()])
def test_a_whole_job_has_the_verdict_that_is_right_for_it(name: str, done: Worked) -> None:
    trial = next(each for each in done.jobs if each.example.name == name)
    assert trial.as_expected, (trial.got, trial.detail, trial.job)
    assert trial.job is not None and trial.job["attempt"] == 1, trial.job


@pytest.mark.parametrize("name", AGAIN)
def test_a_build_comes_out_of_the_cache(name: str, done: Worked) -> None:
    first, second = (
        next(each for each in trials if each.example.name == name).result["kernel_exec_result"]["build"]
        for trials in (done.jobs, done.again)
    )
    assert (first["compile_cache"], second["compile_cache"]) == ("miss", "hit")


def test_the_worker_ends_when_asked_to_and_leaves_no_job_behind(done: Worked) -> None:
    assert (done.exit_status, done.left) == (0, [])


def test_no_submission_removes_anothers_shared_memory_where_everybody_may_write_it() -> None:
    require(KUBERNETES)
    with writable_folder(KUBERNETES) as folder:
        command = [*interpreter(KUBERNETES, folder), "-m", "tests.rights.neighbours", str(folder)]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    keeps, removes = ran.stdout.splitlines()
    assert keeps == "keeps: done"
    assert "Operation not permitted" in removes


def test_there_is_a_job_of_each_kernel_type() -> None:
    bodies = [example.body for example in examples()]
    assert {body[key]["kernel_type"] for body in bodies for key in KERNELS if key in body} == set(KernelType)
