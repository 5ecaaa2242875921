"""/tmp is the submission's own folder where the host allows it; elsewhere the message says what to use instead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backends.base import Target
from domain.fault import KernelFault
from domain.kernel import Kernel, KernelType
from domain.paths import ROOT
from sandbox.isolation import layer_probe, namespaces
from sandbox.isolation.file_access import below
from sandbox.isolation.scratch_dir import remove
from sandbox.supervisor.session import Session
from sandbox.supervisor.zygote_client import Zygote
from tests.conftest import die_with_parent
from tests.sandbox.interpreter import Interpreter, readable_by_all

PERSISTENT = Path("/var/tmp")
READABLE = readable_by_all()
MODES = {"root": Interpreter(sys.executable), "user": READABLE, "container": READABLE}
if os.geteuid() != 0:
    MODES = {"user": Interpreter(sys.executable)}
JUDGED_S = 500
HIDDEN = below(namespaces.TEMPORARY, [])
"""What a private /tmp would hide: the checkout or the interpreter, where it lies below /tmp."""

KEEPS = """
import os
print("sees", sorted(set(os.listdir("/tmp")) - set(os.listdir("."))))
with open("/tmp/{name}", "x") as file:
    file.write("kept")
print("has", open("{name}").read(), os.path.exists("/tmp/{elsewhere}"))

def kernel_fn(x):
    return x
"""
WRITES = """
import os
{attempt}

def kernel_fn(x):
    return x
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder outside of /tmp that others may pass through, as a worker's state lies in one."""
    if not os.access(PERSISTENT, os.W_OK):
        pytest.skip(f"{PERSISTENT} cannot be written here")
    folder = Path(tempfile.mkdtemp(prefix="private-tmp-", dir=PERSISTENT))
    folder.chmod(0o711)
    yield folder
    remove(folder)


def private(place: Path) -> bool:
    return layer_probe.probed(place / "probes", gpu=False)["private_tmp"].active


def test_the_layer_holds_where_mounts_are_allowed(place: Path) -> None:
    found = layer_probe.probed(place / "work", gpu=False)
    if HIDDEN is not None:
        assert not found["private_tmp"].active and "lies below /tmp" in found["private_tmp"].detail
    elif found["namespaces"].active:
        assert found["private_tmp"] == layer_probe.Layer(True, "its own folder")
    else:
        assert found["private_tmp"].active or found["private_tmp"].detail.startswith("/tmp is closed to submissions: ")


def test_below_tmp_itself_the_layer_says_why_it_does_not_hold() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        found = layer_probe.probed(Path(folder) / "work", gpu=False)["private_tmp"]
    assert not found.active
    assert folder in found.detail and "lies below /tmp" in found.detail and "move it elsewhere" in found.detail


def test_what_it_has_there_is_its_own_and_goes_with_it(place: Path) -> None:
    if not private(place):
        pytest.skip("no mounts of a submission's own are allowed here")
    name = f"kept-{os.getpid()}"
    with tempfile.NamedTemporaryFile(dir="/tmp") as elsewhere:
        zygote = Zygote(place, arch=None, memory_limit=1 << 30)
        try:
            for number in range(2):  # The second finds nothing of the first.
                folder = zygote.private_folder(place / f"job-{number}")
                runner = zygote.runner(folder, gpu=False, deadline=time.monotonic() + 60, cancelled=lambda: False)
                session = Session(runner, Target("cpu", None), 1 << 20)
                source = KEEPS.format(name=name, elsewhere=Path(elsewhere.name).name)
                try:
                    session.build(Kernel(source, KernelType.TORCH))
                finally:
                    session.close()
                assert runner.output.text().splitlines() == ["sees []", "has kept False"]
                assert (folder / name).read_text() == "kept"
                remove(folder)
        finally:
            zygote.close()
    assert not Path("/tmp", name).exists()


@pytest.mark.parametrize(
    "attempt",
    ["os.makedirs('/tmp/extensions')", "open('/tmp/made', 'w')", "os.listdir('/tmp')", "open('/tmp/extensions/made')"],
)
def test_where_there_is_none_the_message_says_what_to_use(
    session: Callable[..., Session], folder: Path, attempt: str
) -> None:
    assert folder.is_relative_to("/tmp"), "pytest's folders lie there, so that submissions have none of their own"
    with pytest.raises(KernelFault) as caught:
        session().build(Kernel(WRITES.format(attempt=attempt), KernelType.TORCH))
    assert "no /tmp of their own" in caught.value.message
    assert "`tempfile`" in caught.value.message and "relative path" in caught.value.message


@pytest.mark.parametrize("attempt", ["open('missing')", "open(os.getcwd() + '/missing')", "open('/etc/passwd')"])
def test_other_places_are_not_explained_by_it(session: Callable[..., Session], attempt: str) -> None:
    with pytest.raises(KernelFault) as caught:
        session().build(Kernel(WRITES.format(attempt=attempt), KernelType.TORCH))
    assert "Error" in caught.value.message and "/tmp of their own" not in caught.value.message


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_an_extension_that_is_built_there_is_found_by_the_runner_and_kept(place: Path, mode: str) -> None:
    if HIDDEN is not None:
        pytest.skip(f"{HIDDEN} lies below /tmp, which no submission has for itself then")
    interpreter = MODES[mode]
    if interpreter is None:
        pytest.skip("no interpreter here that every user may read")
    done = subprocess.run(
        [interpreter.executable, "-m", "tests.sandbox.in_tmp", mode, str(place)],
        cwd=ROOT,
        env=interpreter.environment,
        capture_output=True,
        text=True,
        preexec_fn=die_with_parent,
        timeout=JUDGED_S,
        check=False,
    )
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip(f"the interpreter that every user may read lacks a library: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    first, again = json.loads(done.stdout.splitlines()[-1])
    if first["status"] != "passed":  # As in a container, where mounts are refused.
        assert mode == "container" or namespaces.why_no_users() is not None, first
        assert first["status"] == "compile_error" and "no /tmp of their own" in first["message"]
        # Not kept: another worker, which is sent this one's builds, may have one.
        assert first["build"]["compile_cache"] == again["build"]["compile_cache"] == "miss"
        return
    assert first["build"]["compile_cache"] == "miss" and again["build"]["compile_cache"] == "hit"
    for each in (first, again):
        assert each["status"] == "passed" and each["build"]["extensions"] == ["tripled_in_tmp"], each
        assert "compiled_at_run_time" not in each["build"]
