"""deploy/: every metric asked for is exported, every alert has its line in the guide, what is mounted is there."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from domain.paths import ROOT
from profiling.gpu.monitor import REASONS
from profiling.gpu.xid_errors import CARD

DEPLOY = ROOT / "deploy"
GUIDE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
EXPORTED = {name for row in re.findall(r"^\| (`kernel_eval_[^|]*)\|", GUIDE, re.MULTILINE) for name in
            re.findall(r"kernel_eval_\w+", row)}  # fmt: skip
"""tests/api/routes/test_metrics.py keeps the guide's list equal to what is exported."""

HISTOGRAMS = ("_bucket", "_sum", "_count")
RULES = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/dashboards/kernel-eval.json").read_text(encoding="utf-8"))
TARGETS = [
    (panel["title"], target) for panel in DASHBOARD["panels"] if panel["type"] != "row" for target in panel["targets"]
]
EXPRESSIONS = [(rule["alert"], rule["expr"]) for rule in RULES] + [(title, one["expr"]) for title, one in TARGETS]


def bare(name: str) -> str:
    """Of a histogram, less its ending."""
    ending = next((ending for ending in HISTOGRAMS if name.endswith(ending)), "")
    return name.removesuffix(ending) if name.removesuffix(ending) in EXPORTED else name


def services() -> dict[str, Any]:
    compose: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    return compose["services"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS)
def test_what_is_asked_for_is_exported(title: str, expression: str) -> None:
    named = set(re.findall(r"\bkernel_eval_\w+", expression))
    assert named or expression.startswith("up{"), title
    assert {bare(name) for name in named} <= EXPORTED


def test_the_dashboard_shows_what_an_operator_asks_for() -> None:
    shown = {bare(name) for _, target in TARGETS for name in re.findall(r"\bkernel_eval_\w+", target["expr"])}
    left_out = {"broker_up", "queue_limit", "jobs_submitted_total", "jobs_reused_total", "compilations_total", "gpu_up"}
    left_out |= {f"worker_{name}" for name in ("slots", "start_time_seconds", "quarantined", "consecutive_faults")}
    assert EXPORTED - shown == {f"kernel_eval_{name}" for name in left_out}


def test_every_alert_is_in_the_guide_with_what_to_do() -> None:
    rows = dict(re.findall(r"^\| `(KernelEval\w+)` \|.*\| (.+) \|$", GUIDE, re.MULTILINE))
    assert set(rows) == {rule["alert"] for rule in RULES}
    for rule in RULES:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"].endswith(".")


def test_the_cards_errors_and_reasons_are_those_that_are_known() -> None:
    (card,) = [rule["expr"] for rule in RULES if rule["alert"] == "KernelEvalCardError"]
    assert set(map(int, re.findall(r"\d+(?=[|\"])", card))) == set(CARD)
    (slowed,) = [rule["expr"] for rule in RULES if rule["alert"] == "KernelEvalCardSlowed"]
    assert set(re.findall(r"[hs]w_\w+", slowed)) <= set(REASONS.values())


def test_grafana_is_given_what_its_panels_name() -> None:
    (source,) = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert {target["datasource"]["uid"] for _, target in TARGETS} == {source["uid"]}
    assert source["url"] == "http://prometheus:9090" and "prometheus" in services()
    (provider,) = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/kernel-eval.yml").read_text())["providers"]
    mounted = dict(volume.split(":")[:2] for volume in services()["grafana"]["volumes"])
    assert provider["options"]["path"] == mounted["./deploy/grafana/dashboards"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_what_the_containers_mount_is_there() -> None:
    for name in ("prometheus", "grafana"):
        service = services()[name]
        assert service["profiles"] == ["monitoring"]
        for volume in service["volumes"]:
            source, _, _ = volume.partition(":")
            assert not source.startswith(".") or (ROOT / source).is_dir()
    scrape = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = scrape["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"api:{services()['api']['environment']['PORT']}"]}]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{services()['prometheus']['secrets'][0]}"
    assert all((DEPLOY / "prometheus" / file).is_file() for file in scrape["rule_files"])
