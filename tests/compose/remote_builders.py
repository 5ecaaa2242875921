"""The profile `build`: another node's builders build what is queued, and the workers that judge load it."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.compose.events import DEADLINE_S, POLL_S, SLOW, WORKER, Ledger
from tests.compose.project import Project, second

NEW = dataclasses.replace(
    SLOW,
    name="built ahead",
    body={
        "kernel": {
            "source_code": "import torch\n\ndef kernel_fn(x):\n    return x * 3 + 1  # no example has this source\n\n"
            "def get_inputs():\n    return [torch.randn(64)]\n",
            "kernel_type": "torch",
        },
        "num_trials": 2,
    },
)


def built_ahead(node: Project, folder: Path, ledger: Ledger, say: Callable[[str], None]) -> None:
    """As docs/deployment.md has it. The workers rest until the build has been shipped, so BUILD_FOR says for whom."""
    node.write(SHARED_BUILDS_MIB="64")
    node.compose("up", "-d")
    ledger.until_healthy()
    project = second(
        node.engine, folder, node, "third", COMPOSE_PROFILES="build", SHARED_BUILDS_MIB="64", BUILD_FOR="cpu"
    )
    # By the image of the workers that judge here, which have no GPU.
    over = {"services": {"builder": {"image": f"kernel-eval-{WORKER}:{node.variables['TAG']}"}}}
    (project.folder / "over.yml").write_text(json.dumps(over))
    try:
        project.compose("up", "-d", "--no-build", "builder")
        _until(lambda: any("cpu" in each["builds_for"] for each in _builders(ledger)), "it builds for the workers")
        node.compose("stop", WORKER)
        began = time.monotonic()
        trial = ledger.post(NEW)
        _until(lambda: sum(each["shared"] for each in _builders(ledger)) > 0, "the queued job's kernel is built")
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


def _builders(ledger: Ledger) -> list[dict[str, Any]]:
    return ledger.client.get("/health").json()["builders"]  # type: ignore[no-any-return]


def _until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {DEADLINE_S:.0f} s: {what}")
        time.sleep(POLL_S)
