"""What the containers are: small, not root, read-only, with the capabilities that are named and no other."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import httpx

from tests.compose.base import BASE
from tests.compose.events import WORKER
from tests.compose.project import BUILT, Project

SERVICES = ("redis", *BUILT)
GPU_LIBRARIES = ("torch", "triton", "cupy", "numpy")
FOUND = f"import importlib.util as u; print([name for name in {GPU_LIBRARIES} if u.find_spec(name)])"
STATUS = "import os, re; s = open('/proc/1/status').read(); print(os.getuid(), re.search(r'CapBnd:\\s*(\\w+)', s)[1])"
LAYERS = {"capabilities", "no_new_privileges", "landlock", "seccomp", "own_user"}
NAMED = {"CHOWN": 0, "DAC_OVERRIDE": 1, "KILL": 5, "SETGID": 6, "SETUID": 7}
"""Numbers of linux/capability.h."""


def sizes(project: Project, say: Callable[[str], None]) -> None:
    """MB beyond the base, whose size says nothing of ours."""
    tag = project.variables["TAG"]
    images = {"base": BASE, **{service: f"kernel-eval-{service}:{tag}" for service in BUILT}}
    taken = {name: int(project.engine.docker("inspect", "-f", "{{.Size}}", image)) for name, image in images.items()}
    own = {name: size - taken["base"] for name, size in taken.items() if name != "base"}
    beyond = ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in own.items())
    say(f"images, beyond a base of {taken['base'] / 1e6:.0f} MB: {beyond}")
    assert own["api"] < 100e6, "the API's image is to be small"


def containers(project: Project, say: Callable[[str], None]) -> None:
    """Raises AssertionError, with the service's name."""
    for service in SERVICES:
        found = project.inspected(service)
        assert found["RestartCount"] == 0, f"{service} ended and was started again"
        host = found["HostConfig"]
        assert host["ReadonlyRootfs"] and not host["Privileged"], service
        assert "no-new-privileges:true" in host["SecurityOpt"], service
        wrote = subprocess.run(
            project.command("exec", "-T", service, "touch", "/etc/written"),
            env=project.engine.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "Read-only file system" in wrote.stderr, (service, wrote.stderr)
    for service in BUILT:
        user, bounding = project.compose("exec", "-T", service, "python", "-c", STATUS).split()
        allowed = sum(1 << NAMED[name] for name in NAMED) if service == WORKER else 0
        assert int(bounding, 16) == allowed, (service, bounding)
        assert service == WORKER or user == "10001", (service, user)
    say("containers: roots read-only, no new privileges; API and Flower are user 10001 with no capability, the workers "
        f"root with {', '.join(NAMED)} alone")  # fmt: skip
    found = project.compose("exec", "-T", "api", "python", "-c", FOUND)
    assert found == "[]", found
    say(f"API: none of {', '.join(GPU_LIBRARIES)} in its image")


def needs(project: Project, say: Callable[[str], None]) -> None:
    """Memory and disk, after the jobs so far."""
    used = {}
    for service in SERVICES:
        stats = ("stats", "--no-stream", "--format", "{{.MemUsage}}")
        used[service] = [project.engine.docker(*stats, one).split(" / ")[0] for one in project.containers(service)]
    say("memory: " + "; ".join(f"{service} {', '.join(taken)}" for service, taken in used.items()))
    state = project.compose("exec", "-T", WORKER, "du", "-sm", "/var/lib/kernel-eval").split()[0]
    kept = project.compose("exec", "-T", "redis", "du", "-sm", "/data").split()[0]
    say(f"disk: {state} MiB for the workers' volume, {kept} MiB for Redis'")


def layers(client: httpx.Client, say: Callable[[str], None]) -> None:
    """Of the sandbox, as every worker tells them."""
    workers = client.get("/health").json()["workers"]
    held = [{name for name, layer in one["sandbox"].items() if layer["active"]} for one in workers]
    assert held and all(each >= LAYERS for each in held), held
    say(f"sandbox: {', '.join(sorted(held[0]))} hold")


def flower(project: Project, say: Callable[[str], None]) -> None:
    """Reached from the node, by its password alone; it has every task's name, state and runtime, and no source."""
    url = f"http://127.0.0.1:{project.variables['FLOWER_PORT']}"
    user, _, password = project.variables["FLOWER_BASIC_AUTH"].partition(":")
    assert httpx.get(f"{url}/tasks", trust_env=False).status_code == 401
    assert httpx.get(f"{url}/tasks", auth=(user, password + "x"), trust_env=False).status_code == 401
    page = httpx.get(f"{url}/api/tasks", auth=(user, password), trust_env=False)
    tasks = page.raise_for_status().json()
    assert tasks and "def " not in page.text and "__global__" not in page.text
    assert {one["name"] for one in tasks.values()} == {"evaluate"}, page.text
    ended = [one for one in tasks.values() if one["state"] == "SUCCESS"]
    assert ended and all(one["runtime"] > 0 and one["worker"] and one["args"] == "()" for one in ended), page.text
    say(f"Flower: 401 without its password; {len(tasks)} tasks, {len(ended)} ended; no source code")


def empty_password(project: Project, say: Callable[[str], None]) -> None:
    """A container whose password is empty ends and says so."""
    for service, variable in (("redis", "REDIS_PASSWORD"), ("flower", "FLOWER_BASIC_AUTH")):
        # Without its dependencies, and thrown away.
        asked = subprocess.run(
            project.command("run", "--rm", "--no-deps", "-T", "-e", f"{variable}=", service),
            env=project.engine.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert asked.returncode != 0 and f"{variable} is empty" in asked.stdout + asked.stderr, asked
    say("an empty password: Redis and Flower end, and say which variable of .env is empty")
