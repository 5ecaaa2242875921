"""Tests which sandbox layers hold on this worker, in a process that is confined as a runner is."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from domain.settings import SANDBOX_LAYERS
from sandbox.isolation import cgroup, landlock, namespaces, seccomp, uid
from sandbox.isolation.apply import Confinement
from sandbox.isolation.clean_env import clean_environment
from sandbox.isolation.scratch_dir import remove

PROBE_S = 60.0
PROBES = 3
"""Maximum number of attempts: a probe that was killed, as by the OOM killer, says nothing about the sandbox."""


@dataclass(frozen=True)
class Layer:
    """Whether a layer holds, and what enforces it or why not."""

    active: bool
    detail: str

    def line(self, name: str) -> str:
        return f"{name} {'holds' if self.active else 'does not hold'}: {self.detail}"


Layers = dict[str, Layer]
"""Layers by their names in domain.settings.SANDBOX_LAYERS.

`own_user`: every submission has a user of its own. `signals`: no signals to processes outside. `own_gpu_only`: no nodes
of other cards. `private_tmp`: /tmp is the submission's own folder.
"""


class CannotConfine(RuntimeError):
    """The probe could not be confined; the message says why."""


def probe_layers(parent: Path, *, gpu: bool) -> Layers:
    """The layers of a worker whose job folders lie below `parent`. Raises CannotConfine. Takes 0.2 s."""
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = Path(tempfile.mkdtemp(prefix="probe-", dir=parent))
    for traversed in (parent, folder):
        uid.allow_traversal(traversed)
    command = [sys.executable, "-P", "-m", "sandbox.isolation.layer_probe", "gpu" if gpu else "cpu"]
    try:
        for _ in range(PROBES):
            done = subprocess.run(
                command,
                cwd=folder,
                env=clean_environment(folder, interpret=not gpu),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PROBE_S,
                check=False,
            )
            if done.returncode >= 0 and done.returncode != os.EX_TEMPFAIL:
                break
            remove(folder / "own")
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or [f"it ended with {done.returncode}, without a word"]
            raise CannotConfine(f"a process could not be confined: {last[0]}")
        return {name: Layer(**layer) for name, layer in json.loads(done.stdout).items()}
    finally:
        remove(folder / "own")
        remove(folder)


def missing(layers: Layers, required: tuple[str, ...]) -> dict[str, str]:
    """The required layers that do not hold, and why."""
    return {name: layers[name].detail for name in required if not layers[name].active}


def _probe(folder: Path, *, gpu: bool) -> Layers:
    """Forks a confined process and has it test the layers."""
    confinement = Confinement(folder, gpu=gpu)
    own = uid.private_folder(folder / "own", own_user=confinement.has_own_users)
    read_end, write_end = os.pipe()
    outside = namespaces.of("self")
    pid = os.fork()
    if not pid:
        try:
            parent = os.getppid()
            confinement.apply(own, gpu=gpu)
            os.write(write_end, json.dumps(_test_layers(folder, own, parent, outside)).encode())
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(1)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        results = pipe.read()
    if status := os.waitpid(pid, 0)[1]:
        raise SystemExit(os.EX_TEMPFAIL if os.WIFSIGNALED(status) else 1)
    return _describe(confinement, json.loads(results))


def _test_layers(folder: Path, own: Path, parent: int, outside: tuple[str, ...]) -> dict[str, bool]:
    """Tests each layer, in the confined process; True for those that hold."""
    with open("/proc/self/status", encoding="ascii") as lines:
        status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    search = 1 << uid.CAP_DAC_READ_SEARCH
    return {
        "own_user": len(set(os.getresuid())) == 1 and os.getuid() != os.stat(folder).st_uid,
        "capabilities": not any(int(status[which], 16) & ~search for which in ("CapPrm", "CapEff", "CapAmb")),
        "no_new_privileges": status["NoNewPrivs"] == "1",
        "landlock": _refused(lambda: os.listdir(folder)) and _refused(lambda: open("/etc/passwd").close()),
        "seccomp": status["Seccomp"] == "2" and _refused(_inet_socket),
        "signals": _refused(lambda: os.kill(parent, 0)),
        "namespaces": set(namespaces.of("self")).isdisjoint(outside),
        "private_tmp": namespaces.TEMPORARY.is_dir() and namespaces.TEMPORARY.samefile(own),
    }


def _inet_socket() -> None:
    import socket

    socket.socket(socket.AF_INET).close()


def _refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except PermissionError:
        return True
    return False


def _describe(confinement: Confinement, holds: dict[str, bool]) -> Layers:
    abi, closed = confinement.abi, confinement.unreachable_folder
    searching = (
        f", with CAP_DAC_READ_SEARCH: {closed} is closed to other users" if confinement.keeps_search_capability else ""
    )
    why_not_users = uid.why_not() or f"{closed} is closed to other users: chmod o+x {closed}, or install elsewhere"
    if os.geteuid() == 0:
        why_not_users = f"submissions are uid 0, without capabilities: {why_not_users}"
    groups = cgroup.available()
    details = {
        "own_user": (f"one for each submission{searching}", why_not_users),
        "capabilities": (f"none{searching}", "some are left"),
        "no_new_privileges": ("set", "not set"),
        "landlock": (
            f"ABI {abi}" + ("" if abi >= landlock.SCOPE_ABI else ": abstract sockets are not kept apart"),
            f"the kernel has ABI {abi}, needed is {landlock.OLDEST_ABI}: all that its user may open is open"
            + ("" if confinement.uses_namespaces else ", others' /dev/shm too"),
        ),
        "seccomp": (f"{len(seccomp.REFUSED)} system calls refused, and sockets but Unix's", seccomp.available() or ""),
        "signals": ("to its own processes only", "the worker can be signalled"),
        "namespaces": ("network, shared memory, IPC, host name", namespaces.why_not() or ""),
        "private_tmp": ("its own folder", f"/tmp is closed to submissions: {confinement.no_private_tmp_reason}"),
    }
    layers = {name: Layer(holds[name], details[name][not holds[name]]) for name in holds}
    layers["cgroup"] = _cgroup_layer(groups)
    gpus = confinement.gpus
    detail = f"nodes of cards: {', '.join(gpus.cards) or 'none'}" + (
        f"; {gpus.excess_reason}" if gpus.excess_reason else ""
    )
    layers["own_gpu_only"] = Layer(gpus.excess_reason is None and holds["landlock"], detail)
    return {name: layers[name] for name in SANDBOX_LAYERS}


def _cgroup_layer(groups: cgroup.Cgroups | None) -> Layer:
    if groups is None:
        return Layer(False, "the worker may write no cgroup v2; the launcher enforces memory, process and CPU limits")
    if groups.missing:
        return Layer(False, f"only ends processes; the launcher enforces the limits of {', '.join(groups.missing)}")
    return Layer(True, f"{', '.join(groups.controllers)}")


def main() -> None:
    layers = _probe(Path.cwd(), gpu=sys.argv[1] == "gpu")
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps({name: asdict(layer) for name, layer in layers.items()}))


if __name__ == "__main__":
    main()
