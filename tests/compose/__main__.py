"""`make compose`: docker-compose.yml tried for real, with an engine of its own and no image from anywhere.

As root, on Debian; what it makes is under one folder, which it removes in the end. DEBIAN and MIRROR name the release
of the base image and where it is from, COMPOSE the tool (`docker compose`), PIP_FIND_LINKS a folder of wheels. Ends
with 1 where a verdict is wrong, a job is lost or counted twice, or anything is not as docs/deployment.md says.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx

from tests.compose import ahead, base, encrypted, events, guide, held, watched
from tests.compose.engine import Engine, EngineError, engine, missing
from tests.compose.project import BUILT, ROOT, Project, first, own_address, second, tool, wheels
from tests.otlp import collector

SECRET = re.compile(r"kevk_\w+|[0-9a-f]{24,}")


def say(line: str) -> None:
    """With the time that has passed."""
    print(f"{time.monotonic() - _BEGAN:6.0f} s  {SECRET.sub('…', line)}", flush=True)


_BEGAN = time.monotonic()


def timed(title: str, what: Callable[[], object]) -> None:
    began = time.monotonic()
    what()
    say(f"{title}: {time.monotonic() - began:.0f} s")


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


def trial(made: Engine, folder: Path) -> bool:
    """Whether all went as it should."""
    preamble(made)
    timed("base images, by debootstrap", lambda: base.make(made, folder))
    with ExitStack() as stack:
        collected = stack.enter_context(collector(own_address()))
        with wheels() as pip:
            project = first(made, folder, pip, collected.url)
            for service in BUILT:
                timed(f"build {service}", lambda service=service: project.compose("build", service))  # type: ignore[misc]
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
        held.sizes(project, say)
        held.containers(project, say)
        held.layers(client, say)
        held.empty_password(project, say)
        ledger.everything()
        held.needs(project, say)
        another_node(project, folder, ledger)
        ahead.built_ahead(project, folder, ledger, say)
        guide.followed(ledger, collected)
        held.flower(project, say)
        watched.lint(client, say)
        watched.prometheus(project, say, lambda: ledger.judge("under the eyes of Prometheus", 1))
        guide.keys(ledger, say)
        guide.other_password(ledger, say)
        guide.backup(ledger, say)
        ledger.balance()
        return encrypted.judged(project, folder, say) and ledger.good


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compose", description=__doc__)
    parser.add_argument("--folder", type=Path, help="kept, with its images, for the next run that names it")
    kept = parser.parse_args().folder
    needed = missing() + ([] if tool() else ["docker-compose"])
    if os.geteuid() != 0 or needed:
        print(f"As root; first `apt-get install {' '.join(needed) or 'what it names then'}`.", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = kept or Path(tempfile.mkdtemp(prefix="kernel-eval-"))
    folder.mkdir(exist_ok=True)
    try:
        with engine(folder) as made:
            good = trial(made, folder)
    except (AssertionError, TimeoutError, EngineError, httpx.HTTPError) as error:
        say(f"{type(error).__name__}: {error}")
        good = False
    except subprocess.CalledProcessError as error:
        say(f"`{error.cmd[0]} … {error.cmd[-1]}` ended with {error.returncode}:\n{(error.stderr or '')[-2000:]}")
        good = False
    finally:
        if kept is None:
            shutil.rmtree(folder)
    say("all as it should be; nothing is left of it" if good else "NOT as it should be")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
