"""The two trials of docker-compose.yml: all that docs/deployment.md says of it, and the short one that CI runs."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from tests.compose import base, container_limits, encrypted, events, guide, monitoring, remote_builders
from tests.compose.engine import Engine
from tests.compose.journal import say, timed
from tests.compose.project import BUILT, ROOT, Project, first, own_address, second, tool, wheels
from tests.otlp import collector


def preamble(made: Engine) -> None:
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    version = subprocess.run([*tool(), "version", "--short"], env=made.environment, capture_output=True, text=True)
    machine = f"Debian {base.RELEASE}, Linux {platform.release().partition('-')[0]}, {os.cpu_count()} cores"
    say(f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, commit {commit.stdout.strip()}, {machine}")
    say(f"Docker Engine {made.docker('version', '-f', '{{.Server.Version}}')}, compose {version.stdout.strip()}")


def another_node(node: Project, folder: Path, ledger: events.Ledger) -> None:
    """The first node's workers rest meanwhile, so that the other's judge everything."""
    project = second(node.engine, folder, node)
    node.compose("stop", events.WORKER)
    try:
        project.compose("up", "-d", events.WORKER)
        ledger.judge("another node, which knows the broker's address alone; none at work on the first", 1)
        others = [name for name in ("redis", "api", "flower") if project.containers(name)]
        assert not others, f"{others} run on the other node too"
    finally:
        project.down()
    node.compose("up", "-d", "--no-deps", events.WORKER)
    ledger.until_healthy()


@contextmanager
def up(project: Project) -> Iterator[events.Ledger]:
    """Brought up, with a key and no job so far; taken down afterwards, with its volumes."""
    with ExitStack() as stack:
        stack.callback(project.down)
        stack.push(lambda kind, *_: kind and say(project.compose("logs", "--tail=15")))
        began = time.monotonic()
        project.compose("up", "-d")
        key = project.key("trial", "submit", "read")
        client = stack.enter_context(
            httpx.Client(base_url=project.api, headers={"Authorization": f"Bearer {key}"}, timeout=30, trust_env=False)
        )
        ledger = events.Ledger(project, client, say)
        ledger.until_healthy()
        say(f"docker compose --profile cpu up: healthy after {time.monotonic() - began:.0f} s")
        assert httpx.get(f"{project.api}/jobs", trust_env=False).status_code == 401, "no key, and it answered"
        yield ledger


def whole(made: Engine, work: Path, archive: Path) -> bool:
    """Whether all went as it should. `work` is a folder for the projects, `archive` where the base is kept."""
    preamble(made)
    timed("base images, by debootstrap", lambda: base.make(made, archive, base.REDIS, base.PROMETHEUS))
    with collector(own_address()) as collected:
        with wheels(made.folder) as pip:
            project = first(made, work, pip, collected.url)
            for service in BUILT:
                timed(f"build {service}", lambda service=service: project.compose("build", service))  # type: ignore[misc]
        with up(project) as ledger:
            client = ledger.client
            container_limits.sizes(project, say)
            container_limits.containers(project, say)
            container_limits.layers(client, say)
            container_limits.empty_password(project, say)
            ledger.everything()
            container_limits.needs(project, say)
            another_node(project, work, ledger)
            remote_builders.built_ahead(project, work, ledger, say)
            guide.followed(ledger, collected)
            container_limits.flower(project, say)
            monitoring.lint(client, say)
            monitoring.prometheus(project, say, lambda: ledger.judge("under the eyes of Prometheus", 1))
            guide.keys(ledger, say)
            guide.other_password(ledger, say)
            guide.backup(ledger, say)
            ledger.balance()
            return encrypted.judged(project, work, say) and ledger.good


def short(made: Engine, work: Path, archive: Path) -> bool:
    """The same of the part that CI runs; raises EngineError where this machine runs no container."""
    preamble(made)
    timed("base images, by debootstrap", lambda: base.make(made, archive, base.REDIS))
    made.try_container(base.BASE)
    with wheels(made.folder) as pip:
        project = first(made, work, pip, traces="")
        project.write(REDIS_BIND="127.0.0.1")
        timed("build, at once", lambda: build(project))
    with up(project) as ledger:
        container_limits.containers(project, say)
        container_limits.layers(ledger.client, say)
        ledger.briefly()
    if left := made.left():
        say(f"left after `docker compose down --volumes`: {left}")
    return ledger.good and not left


def build(project: Project) -> None:
    """Every image; the workers', which takes longest, beside the others. Raises subprocess.CalledProcessError."""
    with ThreadPoolExecutor() as pool:
        for built in [pool.submit(project.compose, "build", *names) for names in ([events.WORKER], ["api", "flower"])]:
            built.result()
