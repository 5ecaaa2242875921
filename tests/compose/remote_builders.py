"""The profile `build`: another node's build-only worker builds what is queued, and the workers that judge load it."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path

from stack.example import Example
from tests.compose.events import DEADLINE_S, POLL_S, SLOW, WORKER, Ledger
from tests.compose.project import Project, second


def example(number: int) -> Example:
    """A job whose source is no other job's."""
    source = (
        f"import torch\n\ndef kernel_fn(x):\n    return x * 3 + {number}  # no example has this source\n\n"
        "def get_inputs():\n    return [torch.randn(64)]\n"
    )
    body = {"kernel": {"source_code": source, "kernel_type": "torch"}, "num_trials": 2}
    return dataclasses.replace(SLOW, name=f"built elsewhere, {number}", body=body)


def built_ahead(node: Project, folder: Path, ledger: Ledger, say: Callable[[str], None]) -> None:
    """As docs/deployment.md has it. The workers build once, which tells for what to build, and rest during the next."""
    node.write(SHARED_BUILDS_MIB="64")
    node.compose("up", "-d")
    ledger.until_healthy()
    ledger.wait([ledger.post(example(1))])
    project = second(node.engine, folder, node, "third", COMPOSE_PROFILES="build", SHARED_BUILDS_MIB="64")
    # By the image of the workers that judge here, which have no GPU.
    over = {"services": {"builder": {"image": f"kernel-eval-{WORKER}:{node.variables['TAG']}"}}}
    (project.folder / "over.yml").write_text(json.dumps(over))
    try:
        project.compose("up", "-d", "--no-build", "builder")
        _until(lambda: _figure(ledger, "build_messages") == 0, "it takes its messages")
        node.compose("stop", WORKER)
        began, before = time.monotonic(), _figure(ledger, "shared_builds_bytes")
        trial = ledger.post(example(2))
        _until(lambda: _figure(ledger, "shared_builds_bytes") > before, "the queued job's kernel is built")
        node.compose("up", "-d", "--no-deps", WORKER)
        ledger.wait([trial])
        ledger.told("built by a builder of another node while no worker ran, judged here", [trial], began)
        assert trial.job is not None
        built = trial.job["result"]["kernel_exec_result"]["build"]
        assert built["compile_cache"] == "remote_hit" and built["built_by"].startswith("builder"), built
        say(f"  `build` says {built['compile_cache']}, by {built['built_by'].partition('@')[0]}")
    except (AssertionError, TimeoutError):
        say(project.compose("logs", "--tail=40"))
        raise
    finally:
        project.down()
    ledger.until_healthy()


def _figure(ledger: Ledger, name: str) -> float:
    lines = ledger.client.get("/metrics").text.splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"kernel_eval_{name} "))


def _until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {DEADLINE_S:.0f} s: {what}")
        time.sleep(POLL_S)
