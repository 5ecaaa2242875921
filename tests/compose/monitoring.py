"""Prometheus in its container: it scrapes the service, knows the rules, and answers every panel of the dashboard."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from typing import Any

import httpx
import yaml

from tests.compose.events import WORKER
from tests.compose.project import ROOT, Project

DEADLINE_S = 150.0
POLL_S = 1.0
NONE_HERE = ("kernel_eval_gpu_", "kernel_eval_builder_builds_total")
"""What only a worker on a GPU tells, or a builder."""


def expressions() -> dict[str, str]:
    """Of every panel of the dashboard, and of the autoscaler; of those for whose figures no card is needed."""
    board = json.loads((ROOT / "deploy/grafana/dashboards/kernel-eval.json").read_text(encoding="utf-8"))
    targets = [(panel["title"], one["expr"]) for panel in board["panels"] for one in panel.get("targets", [])]
    values = yaml.safe_load((ROOT / "deploy/kubernetes/prometheus-adapter/values.yaml").read_text(encoding="utf-8"))
    (scaled,) = values["rules"]["external"]
    series = re.findall(r"\w+", scaled["name"]["matches"])[0]
    query = scaled["metricsQuery"].replace("<<.Series>>", series).replace("<<.LabelMatchers>>", "")
    targets.append(("what the autoscaler of Kubernetes follows", query))
    return {f"{title}: {asked}": asked for title, asked in targets if not any(name in asked for name in NONE_HERE)}


def until(found: Callable[[], Any], what: str) -> Any:
    """What it finds, once it is true; raises TimeoutError."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            if value := found():
                return value
        except httpx.TransportError:
            pass
        time.sleep(POLL_S)
    raise TimeoutError(f"not after {DEADLINE_S:.0f} s: {what}")


def lint(client: httpx.Client, say: Callable[[str], None]) -> None:
    """Raises AssertionError with what promtool has against it."""
    text = client.get("/metrics").raise_for_status().text
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr
    say(f"promtool check metrics: clean, {sum(not line.startswith('#') for line in text.splitlines())} samples")
    for rules in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        subprocess.run(["promtool", *rules], cwd=ROOT / "deploy/prometheus", check=True, capture_output=True)
    say("promtool check rules, promtool test rules: clean")


def prometheus(project: Project, say: Callable[[str], None], work: Callable[[], None]) -> None:
    """While that work is done it is asked what Grafana would ask; then the workers are stopped, and it says so."""
    file = project.folder / "metrics.key"
    file.write_text(project.key("prometheus", "read"))
    os.chmod(file, 0o644)
    project.compose("up", "-d", "--no-deps", "prometheus")
    with httpx.Client(base_url=f"http://127.0.0.1:{project.variables['PROMETHEUS_PORT']}", trust_env=False) as client:

        def asked(path: str, **given: str) -> Any:
            return client.get(f"/api/v1/{path}", params=given).json().get("data") or {}

        until(lambda: [one for one in asked("targets").get("activeTargets", []) if one["health"] == "up"], "a scrape")
        work()
        unanswered = expressions()
        panels = len(unanswered)

        def all_answered() -> bool:
            for title, expression in list(unanswered.items()):
                if asked("query", query=expression).get("result"):
                    del unanswered[title]
            return not unanswered

        try:
            until(all_answered, "every panel has a series")
        except TimeoutError as error:
            raise TimeoutError(f"no series for {sorted(unanswered)}") from error
        rules = [rule for group in asked("rules")["groups"] for rule in group["rules"]]
        assert rules and all(rule["health"] == "ok" for rule in rules), rules
        say(f"Prometheus: the API is up, {len(rules)} rules are ok, each of {panels} expressions of the dashboard "
            "and the autoscaler that need no card and no builder has a series")  # fmt: skip
        project.compose("stop", WORKER)
        began = time.monotonic()

        def fires() -> bool:
            alerts = asked("alerts")["alerts"]
            return any(
                one["labels"]["alertname"] == "KernelEvalNoWorker" and one["state"] == "firing" for one in alerts
            )

        until(fires, "KernelEvalNoWorker fires")
        say(f"the workers stopped: KernelEvalNoWorker fires after {time.monotonic() - began:.0f} s")
        project.compose("up", "-d", "--no-deps", WORKER)
